"""Files of tensors: to PyTorch and back, checkpoints, and damaged files."""

from __future__ import annotations

import copy
import io
import json
import os

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from nn_oracle import pair, same

import minitorch
from minitorch import nn, optim
from minitorch.serialization import load_file, save_file


def network(m):
    return m.Sequential(
        m.Conv2d(1, 4, 3, padding=1),
        m.BatchNorm2d(4),
        m.ReLU(),
        m.MaxPool2d(2),
        m.Flatten(),
        m.Linear(4 * 4 * 4, 10),
    )


def trained_torch():
    """A network of PyTorch's whose running statistics are not those of the start."""
    torch.manual_seed(0)
    net = network(torch.nn)
    for _ in range(3):
        net(torch.randn(8, 1, 8, 8) * 2 + 1)
    return net.eval()


def test_from_pytorch(tmp_path):
    theirs = trained_torch()
    safetensors.torch.save_file(theirs.state_dict(), tmp_path / "net.safetensors")
    mine = network(nn)
    mine.load_state_dict(load_file(tmp_path / "net.safetensors"))
    x, tx = pair(5, 1, 8, 8)
    same(mine.eval()(x), theirs(tx), rtol=1e-5, atol=1e-5)
    assert mine[1].num_batches_tracked.item() == 3


def test_to_pytorch(tmp_path):
    mine = network(nn)
    for _ in range(3):
        mine(minitorch.randn(8, 1, 8, 8) * 2 + 1)
    save_file(mine.eval().state_dict(), tmp_path / "net.safetensors")
    theirs = network(torch.nn).eval()
    theirs.load_state_dict(safetensors.torch.load_file(tmp_path / "net.safetensors"))
    x, tx = pair(5, 1, 8, 8)
    same(mine(x), theirs(tx), rtol=1e-5, atol=1e-5)


arrays = st.sampled_from(
    ["float32", "float64", "int64", "int32", "int8", "bool"]
).flatmap(
    lambda kind: st.lists(st.integers(0, 4), max_size=3).map(
        lambda shape: (
            (np.arange(np.prod(shape, dtype=int)) % 5).reshape(shape).astype(kind)
        )
    )
)


@given(st.dictionaries(st.text(max_size=5), arrays, max_size=4))
def test_all_dtypes_and_shapes_come_back(tmp_path_factory, content):
    content.pop("__metadata__", None)
    path = tmp_path_factory.mktemp("files") / "x.safetensors"
    tensors = {name: minitorch.tensor(array) for name, array in content.items()}
    save_file(tensors, path, {"note": "a"})
    found = load_file(path)
    assert set(found) == set(content)
    for name, array in content.items():
        assert found[name].dtype is tensors[name].dtype
        np.testing.assert_array_equal(found[name].numpy(), array)


def test_views_are_stored_as_they_look(tmp_path):
    base = minitorch.arange(12).reshape(3, 4)
    save_file({"t": base.t(), "row": base[1], "grad": minitorch.ones(
        1, requires_grad=True)}, tmp_path / "x")  # fmt: skip
    found = load_file(tmp_path / "x")
    assert found["t"].equal(base.t()) and found["row"].tolist() == [4, 5, 6, 7]
    assert not found["grad"].requires_grad
    found["row"][0] = 9  # the memory is ours to write


def test_device(tmp_path):
    save_file({"a": minitorch.ones(2, device="simple")}, tmp_path / "x")
    assert load_file(tmp_path / "x")["a"].device == "cpu"
    assert load_file(tmp_path / "x", "simple")["a"].device == "simple"
    assert minitorch.load(tmp_path / "x", "simple")["a"].device == "simple"


def test_save_and_load_as_in_pytorch(tmp_path):
    mine = network(nn)
    minitorch.save(mine.state_dict(), tmp_path / "net.pt")
    other = network(nn)
    other.load_state_dict(minitorch.load(tmp_path / "net.pt", weights_only=True))
    x = minitorch.randn(2, 1, 8, 8)
    assert other.eval()(x).equal(mine.eval()(x))
    found = safetensors.torch.load_file(tmp_path / "net.pt")
    assert found["1.running_mean"].shape == (4,)


def test_a_checkpoint_resumes_training(tmp_path):
    def step(net, opt):
        opt.zero_grad()
        (net(minitorch.ones(3, 2)) ** 2).sum().backward()
        opt.step()

    net = nn.Linear(2, 2)
    opt = optim.Adam(net.parameters(), lr=0.1)
    step(net, opt)
    minitorch.save(
        {
            "model": net.state_dict(),
            "optim": opt.state_dict(),
            "epoch": 3,
            "best": 0.1,
            "name": "né",
            "rest": [None, True, (1, 2.5), {}, minitorch.ones(())],
        },
        tmp_path / "check.pt",
    )
    found = minitorch.load(tmp_path / "check.pt")
    assert (found["epoch"], found["best"], found["name"]) == (3, 0.1, "né")
    assert found["rest"][:4] == [None, True, (1, 2.5), {}] and found["rest"][4] == 1
    assert found["optim"]["param_groups"][0]["betas"] == (0.9, 0.999)
    other = nn.Linear(2, 2)
    resumed = optim.Adam(other.parameters())
    other.load_state_dict(found["model"])
    resumed.load_state_dict(found["optim"])
    for _ in range(3):
        step(net, opt)
        step(other, resumed)
    assert other.weight.equal(net.weight)
    same_names = {"a.b": {"c": minitorch.ones(1)}, "a": {"b.c": minitorch.zeros(1)}}
    minitorch.save(same_names, tmp_path / "y")
    found = minitorch.load(tmp_path / "y")
    assert found["a.b"]["c"] == 1 and found["a"]["b.c"] == 0
    minitorch.save(minitorch.ones(2), tmp_path / "z")
    assert minitorch.load(tmp_path / "z").tolist() == [1, 1]


def test_open_files(tmp_path):
    kept = {"step": 3, "a": minitorch.arange(3)}
    memory = io.BytesIO()
    minitorch.save(kept, memory)
    memory.seek(0)
    with open(tmp_path / "x", "wb") as file:
        minitorch.save(kept, file)
    with open(tmp_path / "x", "rb") as file:
        for source in (memory, file):
            found = minitorch.load(source, map_location="simple")
            assert found["step"] == 3 and found["a"].tolist() == [0, 1, 2]
            assert found["a"].device == "simple"
    with pytest.raises(ValueError, match="BytesIO"):
        minitorch.load(io.BytesIO(memory.getvalue()[:-1]))


def test_what_comes_from_pytorch_says_how_to_bring_it(tmp_path):
    theirs, mine = torch.nn.Linear(2, 1), nn.Linear(2, 1)
    torch.save(theirs.state_dict(), tmp_path / "x.pt")
    with pytest.raises(ValueError, match=r"x.pt is .* torch.save; .*save_file"):
        minitorch.load(tmp_path / "x.pt")
    with pytest.raises(RuntimeError, match=r"is a torch.Tensor; .*from_dlpack"):
        mine.load_state_dict(theirs.state_dict())
    with pytest.raises(TypeError, match=r"got torch\.Tensor; make one"):
        mine(torch.ones(1, 2))
    found = {k: minitorch.from_dlpack(v) for k, v in theirs.state_dict().items()}
    mine.load_state_dict(found)
    assert mine.weight.tolist() == theirs.weight.tolist()


def test_what_cannot_be_saved(tmp_path):
    path = tmp_path / "x"
    for thing, words in (
        (nn.Linear(1, 1), r"Linear; .*state_dict\(\)"),
        ({"net": {"a": object()}}, r"net\.a is a object"),
        ({(1, 2): 3}, "key"),
    ):
        with pytest.raises(TypeError, match=words):
            minitorch.save(thing, path)
    with pytest.raises(TypeError, match="'a' is a int"):
        save_file({"a": 1}, path)
    with pytest.raises(TypeError, match="dict of tensors"):
        save_file([1], path)
    with pytest.raises(TypeError, match="path"):
        minitorch.save({}, None)
    with pytest.raises(TypeError, match="path"):
        minitorch.load(None)
    with pytest.raises(ValueError, match="weights_only"):
        minitorch.load(path, weights_only=False)
    assert os.listdir(tmp_path) == []  # nothing is left behind


def test_an_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x"
    save_file({"a": minitorch.ones(1)}, path)

    def broken(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="space"):
        save_file({"a": minitorch.zeros(1)}, path)
    assert load_file(path)["a"].item() == 1 and os.listdir(tmp_path) == ["x"]


@given(st.data())
def test_a_truncated_file_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("files") / "x"
    save_file({"a": minitorch.ones(5), "b": minitorch.ones(2, 2)}, path)
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(ValueError, match="cut off"):
        load_file(path)


def test_damaged_and_foreign_files(tmp_path):
    path = tmp_path / "x"
    with pytest.raises(FileNotFoundError):
        minitorch.load(path)
    torch.save({"a": torch.ones(1)}, path)
    with pytest.raises(ValueError, match="not a safetensors file"):
        minitorch.load(path)
    for header in (b"hello!!!", b"[1, 2]  ", json.dumps({"a": 1}).encode()):
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(ValueError, match="header"):
            load_file(path)
    save_file({"a": minitorch.ones(5)}, path)
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(ValueError, match="promises"):
        load_file(path)
    safetensors.torch.save_file({"small": torch.ones(2, dtype=torch.uint8)}, path)
    with pytest.raises(ValueError, match=r"small \(U8\)"):
        load_file(path)
    wrong = {"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}
    header = json.dumps(wrong).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(ValueError, match="damaged"):
        load_file(path)


def test_state_dict_is_not_changed_by_saving(tmp_path):
    state = network(nn).state_dict()
    before = copy.copy(state)
    minitorch.save(state, tmp_path / "x")
    assert list(state) == list(before)


def test_flipped_bits_are_refused(tmp_path):
    """In each byte one bit, another from byte to byte, and the one between a and A."""
    path = tmp_path / "x"
    save_file({"a.weight": minitorch.ones(3), "b": minitorch.zeros(2)}, path)
    content = path.read_bytes()
    taken = []
    for place in range(len(content)):
        for bit in {place % 8, 5}:
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            try:
                load_file(path)
                taken.append((place, bit, bytes(changed)))
            except ValueError:
                pass
    assert not taken, f"{len(taken)}, such as {taken[0]}"


def test_a_flipped_bit_in_a_checkpoint_is_told(tmp_path):
    path = tmp_path / "x"
    minitorch.save({"model": {"w": minitorch.ones(1000)}, "epoch": 3}, path)
    content = bytearray(path.read_bytes())
    content[-2000] ^= 4
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x is damaged: its checksum is .*written"):
        minitorch.load(path)


def test_files_without_a_checksum_load(tmp_path):
    """Those of other programs, and what this library wrote before it had one."""
    path = tmp_path / "x"
    one = {"a": torch.ones(2)}
    for metadata in (None, {"format": "pt"}):
        safetensors.torch.save_file(one, path, metadata)
        assert minitorch.load(path)["a"].tolist() == [1, 1]
    skeleton = {"minitorch": '{"list": [{"tensor": "a"}, 3]}'}
    safetensors.torch.save_file(one, path, skeleton)
    assert minitorch.load(path)[1] == 3


def test_metadata_are_kept_and_a_checksum_among_them_is_not(tmp_path):
    path = tmp_path / "x"
    given = {"note": '"minitorch.sha256":"' + "0" * 64 + '"', "format": "flax"}
    save_file({"a": minitorch.ones(1)}, path, {**given, "minitorch.sha256": "old"})
    assert load_file(path)["a"].item() == 1
    with safetensors.safe_open(path, "numpy") as file:
        assert given.items() <= file.metadata().items()
    minitorch.save({}, path)  # other programs ask for a format: the names are PyTorch's
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata()["format"] == "pt"


def test_deep_json_is_an_error(tmp_path):
    path, deep = tmp_path / "x", "[" * 200_000 + "]" * 200_000
    for text in (deep, json.dumps({"__metadata__": 1})[:-2] + deep + "}"):
        header = text.encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(ValueError, match="header"):
            minitorch.load(path)
    one = {"a": torch.ones(1)}
    safetensors.torch.save_file(one, path, {"minitorch": deep})
    with pytest.raises(ValueError, match="structure"):
        minitorch.load(path)
    endless: list = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested too deeply"):
        minitorch.save(endless, path)


@pytest.mark.parametrize(
    "skeleton, words",
    [
        ('{"tensor": "b"}', "a tensor 'b', which is not in the file"),
        ('{"set": [1]}', "a 'set'; expected tensor, dict, list or tuple"),
        ('{"list": [], "dict": []}', "structure"),
        ('{"dict": [1]}', "structure"),
        ('{"list": 3}', "structure"),
        ('{"tensor": [1]}', "structure"),
        ("{", "structure"),
    ],
)
def test_a_skeleton_that_is_not_ours_is_an_error(skeleton, words, tmp_path):
    path = tmp_path / "x"
    safetensors.torch.save_file({"a": torch.ones(1)}, path, {"minitorch": skeleton})
    with pytest.raises(ValueError, match=words) as caught:
        minitorch.load(path)
    assert str(path) in str(caught.value)


def test_a_file_may_be_replaced_while_it_is_read(tmp_path, monkeypatch):
    """A run that goes on writes its checkpoint anew; a reader gets the one or the
    other, whole."""
    path = tmp_path / "x"
    save_file({"a": minitorch.ones(3)}, path)
    original = safetensors.safe_open

    def replaced(*args, **options):
        monkeypatch.setattr(safetensors, "safe_open", original)
        save_file({"a": minitorch.zeros(5)}, path)
        return original(*args, **options)

    monkeypatch.setattr(safetensors, "safe_open", replaced)
    assert load_file(path)["a"].tolist() == [0] * 5
