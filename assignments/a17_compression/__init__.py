"""a17, Compression: bytes, masks, two of four, error feedback, a teacher."""
