"""a12.6 in minitorch/compiler/recorder.py: inputs of a step that goes elsewhere."""

RIGHT = """                    del self.inputs[count:]
                    return None"""
WRONG = """                    return None"""
