from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING, Any

import gguf
import pytest

from fleet.errors import UserError
from fleet.facts.gguf_header import GgufHeader, merge_splits, read_header, split_names
from fleet.facts.model_from_gguf import model_facts_from_gguf
from fleet.observe.read_model import read_model_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def number(name: str, value: int) -> bytes:
    return key(name, 4, struct.pack("<I", value))


def strings(name: str, count: int) -> bytes:
    body = struct.pack("<IQ", 8, count) + b"".join(text(f"t{i}") for i in range(count))
    return key(name, 9, body)


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dims + struct.pack("<IQ", kind, offset)


def header(keys: list[bytes], tensors: list[bytes], version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    return head + b"".join(keys) + b"".join(tensors)


ARCH = key("general.architecture", 8, text("llama"))
SHAPE = [
    ARCH, number("llama.block_count", 1), number("llama.embedding_length", 32),
    number("llama.context_length", 128), number("llama.attention.head_count", 2),
    number("llama.feed_forward_length", 64),
]  # fmt: skip
EMBEDDING = tensor("token_embd.weight", (32, 4), 0, 0)


def parse(raw: bytes, size: int | None = None) -> GgufHeader:
    whole = len(raw) + 4096 if size is None else size
    return read_header(lambda at, n: raw[at : at + n].ljust(n, b"\0"), whole, name="m.gguf")


@pytest.mark.pure
def test_reads_keys_tensors_and_the_length_of_a_vocabulary() -> None:
    read = parse(header([*SHAPE, strings("tokenizer.ggml.tokens", 5000)], [EMBEDDING]))

    facts = model_facts_from_gguf(read)

    assert (facts.arch, facts.n_layer, facts.n_vocab) == ("llama", 1, 4)
    assert facts.weights_bytes == 32 * 4 * 4


@pytest.mark.pure
@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"nonsense" * 9, "no GGUF"),
        (header(SHAPE, [], version=9), "version 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "metadata keys"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "tensors"),
        (header([key("a", 8, struct.pack("<Q", 2**40))], []), "bytes that are left"),
        (header([key("a", 9, struct.pack("<IQ", 8, 2**50))], []), "bytes that are left"),
        (header([key("a", 9, struct.pack("<IQ", 4, 2**50))], []), "bytes that are left"),
        (header([key("a", 77, b"")], []), "type 77"),
        (header([key("a", 9, struct.pack("<IQ", 9, 1))], []), "array of type 9"),
        (header([ARCH, ARCH], []), "given twice"),
        (header(SHAPE, [EMBEDDING, EMBEDDING]), "given twice"),
        (header(SHAPE, [tensor("w", (2**50,), 0, 0)]), "absurd shape"),
        (header(SHAPE, [tensor("w", (0, 4), 0, 0)]), "absurd shape"),
        (header(SHAPE, [tensor("w", (1,) * 5, 0, 0)]), "5 dimensions"),
        (header(SHAPE, [tensor("w", (32,), 999, 0)]), "type 999"),
        (header(SHAPE, [tensor("w", (33,), 8, 0)]), "q8_0 blocks"),
        (header(SHAPE, [tensor("w", (32,), 0, 2**40)]), "ends at byte"),
        (header([*SHAPE, number("general.alignment", 3)], []), "power of two"),
    ],
)
def test_a_header_that_lies_is_named_and_refused(raw: bytes, says: str) -> None:
    with pytest.raises(UserError, match=says) as refused:
        parse(raw)

    assert refused.value.where == "m.gguf"


@pytest.mark.pure
@pytest.mark.parametrize("missing", range(1, 5))
def test_a_missing_key_is_named(missing: int) -> None:
    keys = [each for i, each in enumerate(SHAPE) if i != missing]

    if missing == 4:  # a model without heads has no caches to plan
        return
    with pytest.raises(UserError, match="is missing"):
        model_facts_from_gguf(parse(header(keys, [EMBEDDING])))


@pytest.mark.pure
def test_every_cut_of_a_header_is_an_error_not_a_crash() -> None:
    raw = header([*SHAPE, strings("tokenizer.ggml.tokens", 40)], [EMBEDDING])

    for end in range(0, len(raw), 7):
        with pytest.raises(UserError):
            parse(raw[:end], size=end)


def splits(*numbers: int, count: int) -> list[GgufHeader]:
    wide = struct.pack("<H", count)
    return [
        parse(header(
            [*SHAPE, key("split.count", 2, wide), key("split.no", 2, struct.pack("<H", no))],
            [tensor(f"blk.0.{place}", (32,), 0, 0)],
        ))
        for place, no in enumerate(numbers)
    ]  # fmt: skip


@pytest.mark.pure
def test_splits_are_joined_in_order_and_cycles_are_seen() -> None:
    assert len(merge_splits(splits(0, 1, 2, count=3)).tensors) == 3
    with pytest.raises(UserError, match="it says it is split 0, not 1"):
        merge_splits(splits(0, 0, count=2))
    with pytest.raises(UserError, match="2 were given"):
        merge_splits(splits(0, 1, count=3))


@pytest.mark.pure
def test_the_first_split_names_the_others() -> None:
    assert split_names("m-00001-of-00002.gguf", 2)[1] == "m-00002-of-00002.gguf"
    with pytest.raises(UserError, match="its name does not"):
        split_names("m-00002-of-00002.gguf", 2)
    with pytest.raises(UserError, match="its name does not"):
        split_names("m.gguf", 2)


def test_agrees_with_the_gguf_package(tiny_models: Mapping[str, Path]) -> None:
    for path in tiny_models.values():
        raw = path.read_bytes()
        ours = read_header(lambda at, n, raw=raw: raw[at : at + n], len(raw))
        theirs = gguf.GGUFReader(path)

        assert [(t.name, t.shape, t.size) for t in ours.tensors] == [
            (t.name, tuple(int(n) for n in t.shape), int(t.n_bytes)) for t in theirs.tensors
        ]
        assert ours.data_offset == theirs.data_offset or not theirs.tensors
        for name, value in ours.metadata.items():
            if isinstance(value, int | float | str):
                assert value == pytest.approx(theirs.fields[name].contents())


def test_a_sparse_400_gb_split_set_is_read_within_a_second(tmp_path: Path) -> None:
    count, size = 8, 50 * 10**9
    for no in range(count):
        extra: list[Any] = [strings("tokenizer.ggml.tokens", 164_000)] if no == 0 else []
        keys = [*SHAPE, *extra, key("split.count", 2, struct.pack("<H", count)),
                key("split.no", 2, struct.pack("<H", no))]  # fmt: skip
        tensors = [tensor(f"blk.0.w{no}.weight", (4096, 4096, 512), 8, 0)]
        path = tmp_path / f"m-{no + 1:05}-of-{count:05}.gguf"
        path.write_bytes(header(keys, [*tensors, *([EMBEDDING] if no == 0 else [])]))
        os.truncate(path, size)

    start = time.process_time()
    facts = read_model_file(tmp_path / f"m-00001-of-{count:05}.gguf")

    assert time.process_time() - start < 1.0
    assert facts.weights is not None
    assert len(facts.files) == count
    assert facts.weights.total == 512 + count * 4096 * 4096 * 512 * 34 // 32
