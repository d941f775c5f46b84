"""Files that are written whole or not at all, and hashes of their content."""

import hashlib
import io
import json
import os
import pathlib

from etils import epath

Path = pathlib.Path | epath.Path


def write_bytes(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replaces a file in one step: at any moment it holds the old content or the new.

    Args:
      durable: whether the content must be on the disk, not only in the system's memory, on return.
    """
    if path.exists() and not path.is_file():
        # What is not a file, such as /dev/stdout, cannot be replaced; a folder is refused.
        path.write_bytes(content)
        return
    temporary = path.parent / f'.{path.name}.{os.getpid()}'
    try:
        with temporary.open('wb') as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """As `write_bytes`, in UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: object) -> None:
    """As `write_text`: indented JSON that ends with a newline."""
    write_text(path, json_text(content, indent=2) + '\n')


def json_text(content: object, indent: int | None = None) -> str:
    """JSON, in which null stands for NaN and for infinity: the standard has neither."""
    finite = json.loads(json.dumps(content), parse_constant=lambda name: None)
    return json.dumps(finite, indent=indent, ensure_ascii=False)


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with path.open('rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def json_sha256(content: object) -> str:
    """The SHA-256 of a JSON value, whatever the order of its keys, in hexadecimal."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def write_figure(path: Path, figure, **options: object) -> None:
    """Writes a figure of matplotlib, whole or not at all, in the format that the name ends with.

    Args:
      options: of matplotlib's savefig, which itself cannot write to the cloud.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix.removeprefix('.'), **options)
    write_bytes(path, drawn.getvalue())
