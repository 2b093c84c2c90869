"""MNIST: where it is looked for, how it is fetched, and what happens when it cannot
be had. Tests use four small files in place of the real ones, and mirrors on this
machine; the real files are read where they are at hand."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import minitorch
from minitorch.data import (
    MNIST,
    DataLoader,
    MNISTFileError,
    MNISTUnavailable,
    default_collate,
    download,
    load_digits,
    load_mnist,
    mnist,
    read_idx,
    write_idx,
)

ROOT = Path(__file__).resolve().parents[2]
NAMES = [file.name for pair in mnist.MNIST_FILES.values() for file in pair]


def small_digits() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(30, 28, 28), (30,), (10, 28, 28), (10,)]
    return {
        name: rng.integers(0, 10, shape).astype(np.uint8)
        for name, shape in zip(NAMES, shapes, strict=True)
    }


@pytest.fixture
def arrays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, np.ndarray]:
    """Small files take MNIST's place; an empty cache; no mirrors, no user folder."""
    arrays = small_digits()
    plain = tmp_path / "plain"
    plain.mkdir()
    files = {}
    for train, pair in mnist.MNIST_FILES.items():
        changed = []
        for file in pair:
            write_idx(plain / file.name, arrays[file.name])
            digest = hashlib.md5((plain / file.name).read_bytes()).hexdigest()
            changed.append(mnist.MNISTFile(file.name, digest))
        files[train] = (changed[0], changed[1])
    monkeypatch.setattr(mnist, "MNIST_FILES", files)
    monkeypatch.setattr(mnist, "MIRRORS", ())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MINITORCH_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    return arrays


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "minitorch" / "mnist"


def put(folder: Path, arrays: dict[str, np.ndarray], ending: str = ".gz") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        write_idx(folder / (name + ending), array)


def check(result: tuple[np.ndarray, np.ndarray], arrays: dict[str, np.ndarray]) -> None:
    """`result` is one of the two parts."""
    names = NAMES[:2] if len(result[1]) == 30 else NAMES[2:]
    np.testing.assert_array_equal(result[0], arrays[names[0]])
    np.testing.assert_array_equal(result[1], arrays[names[1]])


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def serve(server: http.server.HTTPServer) -> None:
    """In a thread; the short interval is for a quick shutdown."""
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()


class Server:
    """A mirror on this machine: serves a folder, and counts what is asked for."""

    def __init__(self, folder: Path) -> None:
        asked = self.asked = []

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                super().do_GET()

            def log_message(self, format: str, *args: object) -> None:
                pass

        make = functools.partial(Handler, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), make)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        serve(self.server)


@pytest.fixture
def mirror(tmp_path: Path, arrays: dict[str, np.ndarray]) -> Iterator[Server]:
    put(tmp_path / "mirror", arrays)
    server = Server(tmp_path / "mirror")
    yield server
    server.server.shutdown()
    server.server.server_close()


# Where it is looked for


@pytest.mark.parametrize("layout", ["", "mnist", "MNIST/raw"])
@pytest.mark.parametrize("ending", [".gz", ""])
def test_layouts(arrays, tmp_path: Path, layout: str, ending: str) -> None:
    put(tmp_path / "data" / layout, arrays, ending)
    for train in (True, False):
        check(load_mnist(tmp_path / "data", train, download=False), arrays)


def test_names_with_a_dot(arrays, tmp_path: Path) -> None:
    put(tmp_path, {name.replace("-idx", ".idx"): a for name, a in arrays.items()}, "")
    check(load_mnist(tmp_path, download=False), arrays)


def test_environment_variable(arrays, tmp_path: Path, monkeypatch) -> None:
    put(tmp_path / "data", arrays)
    monkeypatch.setenv("MINITORCH_DATA", str(tmp_path / "data"))
    check(load_mnist(download=False), arrays)
    # The argument comes first, and where it has nothing the variable does.
    check(load_mnist(tmp_path / "nowhere"), arrays)


def test_order(arrays, tmp_path: Path, cache: Path, monkeypatch) -> None:
    """Each place in turn is taken away, until there is none."""
    places = [tmp_path / "argument", tmp_path / "variable", cache]
    for place in places:
        put(place, arrays)
    monkeypatch.setenv("MINITORCH_DATA", str(places[1]))
    used = []
    real = mnist.read_idx
    monkeypatch.setattr(
        mnist, "read_idx", lambda p, md5: (used.append(p.parent), real(p, md5=md5))[1]
    )
    for place in places:
        load_mnist(places[0])
        assert used[-2:] == [place, place]
        shutil.rmtree(place)
        if place == places[1]:
            monkeypatch.delenv("MINITORCH_DATA")
    with pytest.raises(MNISTUnavailable) as caught:
        load_mnist(places[0])
    tried = [place for place, _ in caught.value.tried]
    assert tried == [f"data_dir {places[0]}", f"cache {cache}"]
    with pytest.raises(MNISTUnavailable, match=r"not allowed \(download=False\)"):
        load_mnist(download=False)


@pytest.mark.parametrize("missing", range(4))
@pytest.mark.parametrize("named", ["argument", "variable"])
@pytest.mark.parametrize("load", [load_mnist, load_digits])
def test_a_named_folder_that_lacks_a_file_is_an_error(
    arrays, mirror: Server, cache: Path, tmp_path: Path, monkeypatch, missing: int,
    named: str, load,
) -> None:  # fmt: skip
    """Although the file is in the cache, and is to be had from a mirror."""
    monkeypatch.setattr(mnist, "MIRRORS", (mirror.url,))
    put(cache, arrays)
    folder = tmp_path / "data"
    put(folder, arrays)
    (folder / f"{NAMES[missing]}.gz").unlink()
    if named == "variable":
        monkeypatch.setenv("MINITORCH_DATA", str(folder))
        options = {}
    else:
        options = {"data_dir": folder}
        if load is load_mnist:
            options["download"] = False
    with pytest.raises(MNISTFileError, match=f"{NAMES[missing]}: not in it: {folder}"):
        load(train=missing < 2, **options)
    shutil.rmtree(folder)
    with pytest.raises(MNISTFileError, match=f"no such folder: {folder}"):
        load(**options)
    assert mirror.asked == []


# Files of the user


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "other content":
        array = read_idx(path)
        array.flat[0] ^= 1
        write_idx(path, array)
    elif how == "html":
        path.write_bytes(b"<html>no</html>")


HOWS = ["truncated", "empty", "other content", "html"]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("load", [load_mnist, load_digits])
def test_a_broken_file_of_the_user_is_an_error_and_left_alone(
    arrays, mirror: Server, tmp_path: Path, monkeypatch, how: str, load
) -> None:
    monkeypatch.setattr(mnist, "MIRRORS", (mirror.url,))
    put(tmp_path / "data", arrays)
    path = tmp_path / "data" / f"{NAMES[0]}.gz"
    damage(path, how)
    before = snapshot(tmp_path / "data")
    with pytest.raises(MNISTFileError) as caught:
        load(tmp_path / "data")
    message = str(caught.value)
    assert str(path) in message and mnist.MNIST_FILES[True][0].md5 in message
    assert "Replace it, or remove it" in message
    assert snapshot(tmp_path / "data") == before
    assert mirror.asked == []


def test_wrong_content_names_both_checksums(arrays, tmp_path: Path) -> None:
    put(tmp_path, arrays)
    path = tmp_path / f"{NAMES[1]}.gz"
    damage(path, "other content")
    found = hashlib.md5(gzip.decompress(path.read_bytes())).hexdigest()
    with pytest.raises(MNISTFileError, match=f"is {found}, expected"):
        load_mnist(tmp_path)


# Downloads


def test_download_goes_to_the_cache_once(
    arrays, mirror: Server, cache: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(mnist, "MIRRORS", (mirror.url,))
    (tmp_path / "data").mkdir()
    check(load_mnist(tmp_path / "data"), arrays)
    assert mirror.asked == [f"/{name}.gz" for name in NAMES[:2]]
    assert sorted(p.name for p in cache.iterdir()) == [f"{n}.gz" for n in NAMES[:2]]
    check(load_mnist(tmp_path / "data"), arrays)
    assert len(mirror.asked) == 2
    assert list((tmp_path / "data").iterdir()) == []


def test_file_urls(arrays, mirror: Server, tmp_path: Path, monkeypatch) -> None:
    folder = (tmp_path / "mirror").as_uri() + "/"
    monkeypatch.setattr(mnist, "MIRRORS", (folder,))
    check(load_mnist(train=False), arrays)


@pytest.mark.parametrize("how", [*HOWS, "missing"])
def test_a_bad_mirror_is_passed_over(
    arrays, mirror: Server, cache: Path, tmp_path: Path, monkeypatch, how: str
) -> None:
    bad = tmp_path / "bad"
    put(bad, arrays)
    for path in bad.iterdir():
        if how == "missing":
            path.unlink()
        else:
            damage(path, how)
    bad_server = Server(bad)
    monkeypatch.setattr(mnist, "MIRRORS", (bad_server.url, mirror.url))
    check(load_mnist(), arrays)
    assert len(bad_server.asked) == len(mirror.asked) == 2
    assert sorted(p.name for p in cache.iterdir()) == [f"{n}.gz" for n in NAMES[:2]]
    bad_server.server.shutdown()
    bad_server.server.server_close()


@pytest.mark.parametrize("how", HOWS)
def test_a_broken_file_in_the_cache_is_put_aside_and_fetched_again(
    arrays, mirror: Server, cache: Path, monkeypatch, how: str
) -> None:
    monkeypatch.setattr(mnist, "MIRRORS", (mirror.url,))
    put(cache, arrays)
    path = cache / f"{NAMES[0]}.gz"
    damage(path, how)
    broken = path.read_bytes()
    with pytest.warns(UserWarning, match="broken file in the cache.*it is now"):
        check(load_mnist(), arrays)
    assert mirror.asked == [f"/{NAMES[0]}.gz"]
    assert path.with_name(path.name + ".broken").read_bytes() == broken
    check(load_mnist(), arrays)  # without a warning, without the mirror
    assert len(mirror.asked) == 1


def test_a_broken_cache_without_a_network_says_so(arrays, cache: Path) -> None:
    put(cache, arrays)
    damage(cache / f"{NAMES[0]}.gz", "truncated")
    with (
        pytest.warns(UserWarning),
        pytest.raises(MNISTUnavailable, match="gzip data is broken"),
    ):
        load_mnist()


def test_a_download_cut_short(arrays, cache: Path, monkeypatch) -> None:
    """The mirror promises more bytes than it sends."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 10)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    serve(server)
    monkeypatch.setattr(mnist, "MIRRORS", (f"http://127.0.0.1:{server.server_port}/",))
    with pytest.raises(MNISTUnavailable, match="sent 10 of 1000 bytes"):
        load_mnist()
    assert list(cache.iterdir()) == []
    server.shutdown()
    server.server_close()


# No network


def test_refused_connections(arrays, monkeypatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        monkeypatch.setattr(mnist, "MIRRORS", (url, url + "b/"))
        with pytest.raises(MNISTUnavailable) as caught:
            load_mnist()
    places = [place for place, _ in caught.value.tried]
    assert places[-2:] == [f"{url}{NAMES[0]}.gz", f"{url}b/{NAMES[0]}.gz"]
    assert "refused" in str(caught.value)
    assert "MINITORCH_DATA" in str(caught.value)


@pytest.mark.parametrize("where", ["name", "silence"])
def test_a_mirror_that_never_answers(arrays, monkeypatch, where: str) -> None:
    """The look-up of the name hangs; or the server takes the call and is silent."""
    monkeypatch.setattr(download, "ANSWER_WITHIN", 0.2)
    release = threading.Event()
    if where == "name":

        def hang(*args: object, **options: object) -> object:
            release.wait(20)
            raise OSError("gone")

        monkeypatch.setattr(socket, "getaddrinfo", hang)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://localhost:{silent.getsockname()[1]}/"
        if where == "silence":
            url = url.replace("localhost", "127.0.0.1")
        monkeypatch.setattr(mnist, "MIRRORS", (url, url, url))
        started = time.monotonic()
        with pytest.raises(MNISTUnavailable, match=r"no answer within 0\.\d s"):
            load_mnist()
        assert time.monotonic() - started < 5
        release.set()


def test_all_mirrors_together_stay_below_ten_seconds() -> None:
    assert len(mnist.MIRRORS) * download.ANSWER_WITHIN < 10


def test_an_unwritable_cache_is_named_before_anything_is_fetched(
    arrays, mirror: Server, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(mnist, "MIRRORS", (mirror.url,))
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(MNISTUnavailable, match="cannot be written") as caught:
        load_mnist()
    assert str(tmp_path / "cache") in str(caught.value)
    assert mirror.asked == []


@pytest.mark.skipif(
    os.name == "nt" or (hasattr(os, "geteuid") and os.geteuid() == 0),
    reason="needs a user whom file permissions stop (not root, not Windows)",
)
def test_a_cache_without_write_permission(arrays, cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o500)
    with pytest.raises(MNISTUnavailable, match="cannot be written"):
        load_mnist()
    cache.chmod(0o700)


# load_digits


def test_load_digits_prefers_mnist(arrays, tmp_path: Path) -> None:
    put(tmp_path, arrays)
    digits = load_digits(tmp_path, train=False)
    assert (digits.source, digits.notice, len(digits)) == ("mnist", "", 10)
    check((digits.images, digits.labels), arrays)


def test_load_digits_falls_back_and_says_why(arrays, tmp_path: Path) -> None:
    digits = load_digits(train=False, allow_download=False)
    assert digits.source == "drawn" and len(digits) == 2000
    assert digits.images.shape == (2000, 28, 28)
    assert "drawn digits, not MNIST's" in digits.notice
    assert "not allowed (download=False)" in digits.notice
    more = load_digits(train=False, allow_download=False, least=2100)
    assert len(more) == 2100 and np.array_equal(more.images[:2000], digits.images)


def test_load_digits_of_one_source_only(arrays, tmp_path: Path) -> None:
    with pytest.raises(MNISTUnavailable):
        load_digits(allow_download=False, source="mnist")
    put(tmp_path, arrays)
    assert load_digits(tmp_path, train=False, source="drawn").source == "drawn"
    with pytest.raises(ValueError, match="source is 'fashion'"):
        load_digits(source="fashion")  # type: ignore[arg-type]


# The data set


def test_data_set_items_and_batches(arrays, tmp_path: Path) -> None:
    put(tmp_path, arrays)
    data = MNIST(tmp_path, train=False)
    assert len(data) == 10 and data.data.shape == (10, 28, 28)
    image, label = data[3]
    assert (image.shape, image.dtype) == ((1, 28, 28), minitorch.float32)
    expected = arrays[NAMES[2]][3] / np.float32(255)
    np.testing.assert_array_equal(image.numpy()[0], expected)
    assert type(label) is int and label == arrays[NAMES[3]][3]
    # Whole batches are what the items collate to.
    ((images, labels), _) = DataLoader(data, 6)
    items = default_collate([data[i] for i in range(6)])
    np.testing.assert_array_equal(images.numpy(), items[0].numpy())
    assert labels.dtype is items[1].dtype is minitorch.int64
    assert labels.tolist() == items[1].tolist()


def test_data_set_with_transforms(arrays, tmp_path: Path) -> None:
    put(tmp_path, arrays)
    data = MNIST(tmp_path, False, lambda image: int(image.sum()), lambda y: -y)
    sums = arrays[NAMES[2]].astype(int).sum(axis=(1, 2))
    labels = -arrays[NAMES[3]].astype(int)
    assert data[4] == (sums[4], labels[4])
    ((first, second),) = DataLoader(data, 10)
    assert first.tolist() == sums.tolist() and second.tolist() == labels.tolist()


def test_data_set_does_not_download_unasked(arrays, mirror, monkeypatch) -> None:
    monkeypatch.setattr(mnist, "MIRRORS", (mirror.url,))
    with pytest.raises(MNISTUnavailable, match="download=False"):
        MNIST()
    assert len(MNIST(download=True)) == 30


# The real ones


@pytest.fixture
def real_data() -> Path:
    places = [ROOT.parent / "shared" / "data"]
    if os.environ.get("MINITORCH_DATA"):
        places.insert(0, Path(os.environ["MINITORCH_DATA"]))
    for place in places:
        if mnist._find(mnist.MNIST_FILES[True][0], place) is not None:
            return place
    pytest.skip(
        f"MNIST is in none of {[str(p) for p in places]}; set MINITORCH_DATA to its "
        "folder to run this test"
    )


@pytest.mark.parametrize(("train", "n"), [(True, 60_000), (False, 10_000)])
def test_real_mnist(real_data: Path, train: bool, n: int) -> None:
    images, labels = load_mnist(real_data, train, download=False)
    assert images.shape == (n, 28, 28) and images.dtype == np.uint8
    assert labels.shape == (n,) and labels.dtype == np.uint8
    # Well-known numbers: the first labels, the share of ones, the mean and deviation.
    first = [5, 0, 4, 1, 9] if train else [7, 2, 1, 0, 4]
    assert labels[:5].tolist() == first
    assert (labels == 1).sum() == (6742 if train else 1135)
    if train:
        assert abs(images.mean() / 255 - 0.1307) < 1e-4
        assert abs(images.std() / 255 - 0.3081) < 1e-4
