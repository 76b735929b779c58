"""The cause of a failed start, from lines that real engines write."""

from __future__ import annotations

import pytest

from fleet.deploy.start_failure import classify

pytestmark = pytest.mark.pure

GDB = "58\t../sysdeps/nptl/libc_start_call_main.h: No such file or directory."


@pytest.mark.parametrize(
    ("cause", "lines"),
    [
        ("argument", ["error: invalid argument: --no-mmap"]),
        ("argument", ['error while handling argument "-ctk": Unsupported cache type: q6_K']),
        ("argument", ["error: unknown argument: --foo"]),
        ("port-in-use", [
            "srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8099",
            "exiting due to HTTP server error",
        ]),
        ("file-missing", [
            "gguf_init_from_file: failed to open GGUF file 'x.gguf' (No such file or directory)",
            "common_init_: failed to load model 'x.gguf'",
        ]),
        ("corrupt-gguf", ["gguf_init_from_file_impl: invalid magic characters: 'nota'"]),
        ("corrupt-gguf", [
            ("error loading model: tensor 'blk.3.w' data is not within the file bounds, "
            "model is corrupted or incomplete")
        ]),
        ("unsupported-architecture", ["unknown model architecture: 'xyz'"]),
        ("out-of-memory", [
            ("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1234.50 MiB on device 0: "
            "cudaMalloc failed: out of memory"),
            "failed to allocate buffer for kv cache",
        ]),
        ("out-of-memory", ["ggml_vulkan: Device memory allocation of size 1234567890 failed."]),
        ("out-of-memory", ["ggml_aligned_malloc: insufficient memory (attempted 9 MB)"]),
        ("cache-types", ["model does not support different K (q8_0) and V (f16) cache types"]),
        ("draft", ["the target and draft vocabs are not compatible"]),
        ("rpc", ["RPC server version mismatch: 7.0.0"]),
        ("assertion", ["/src/ggml.c:1: GGML_ASSERT(a == b) failed", GDB]),
    ],
)  # fmt: skip
def test_the_first_telling_line_names_the_cause(cause: str, lines: list[str]) -> None:
    failure = classify(["loading model", *lines, "cleaning up before exit..."], 1)

    assert failure.cause == cause
    assert failure.line in lines
    assert failure.fix


@pytest.mark.parametrize(
    ("code", "cause"), [(137, "killed"), (134, "aborted"), (132, "illegal-instruction")]
)
def test_a_silent_death_is_named_by_its_exit_code(code: int, cause: str) -> None:
    assert classify(["load_tensors: loading"], code).cause == cause


def test_a_debugger_s_lines_are_no_missing_file() -> None:
    assert classify([GDB], 134).cause == "aborted"


def test_what_is_not_known_says_so_with_the_last_line_that_reads_as_an_error() -> None:
    failure = classify(["fine", "0.01 E something odd", "fine again"], 1)

    assert (failure.cause, failure.line) == ("unknown", "0.01 E something odd")
