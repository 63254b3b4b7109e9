"""Pictures into a film: a .gif by Pillow, or an .mp4 by the ffmpeg that imageio-ffmpeg brings along."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from motet.errors import BadEnvironment, BadOption

FORMATS = (".mp4", ".gif")
COLOURS = 128
"""In a picture of a .gif."""
FASTEST_GIF = 50
"""Pictures a second: viewers take shorter pauses for longer ones."""


def best_format() -> str:
    """.mp4 where it can be made: it is smaller, and has all colours."""
    return ".mp4" if importlib.util.find_spec("imageio_ffmpeg") else ".gif"


class Film:
    """A film that is being made; a context. Either the whole file is there at the end, or none."""

    def __init__(self, path: Path, frames_per_second: float):
        if path.suffix.lower() not in FORMATS:
            raise BadOption(f"A film is an .mp4 or a .gif, but is to be written to {path}: name a file that ends so.")
        if not frames_per_second > 0:
            raise BadOption(f"fps must be above 0, got {frames_per_second}")
        self.path, self.frames = path, 0
        self._part = path.with_name(f"{path.stem}.part{path.suffix.lower()}")
        self._shape: tuple[int, ...] = ()
        maker = _Gif if path.suffix.lower() == ".gif" else _Mp4
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._part.touch()
        except OSError as error:
            raise BadOption(f"{path} cannot be written: {error.strerror}.") from None
        self._maker: _Maker = maker(self._part, frames_per_second)

    def add(self, frame: Any) -> None:
        """One more picture, uint8 [height, width, 3]."""
        picture = np.asarray(frame)
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
            raise BadEnvironment(
                f"A picture of an environment should be uint8 [height, width, 3], but is {picture.dtype} "
                f"{list(picture.shape)}."
            )
        if self._shape not in ((), picture.shape):
            raise BadEnvironment(
                f"The pictures of an environment should be of one size, but after {self._shape[:2]} came "
                f"{picture.shape[:2]} (height, width)."
            )
        self._shape = picture.shape
        self._maker.add(picture)
        self.frames += 1

    def __enter__(self) -> Film:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            self._maker.close(kind is None and self.frames > 0)
            if kind is None and self.frames:
                os.replace(self._part, self.path)
        except OSError as error:
            raise BadOption(f"{self.path} cannot be written: {error.strerror or error}.") from None
        finally:
            with contextlib.suppress(OSError):
                self._part.unlink()


class _Maker(Protocol):
    def __init__(self, path: Path, frames_per_second: float): ...
    def add(self, picture: np.ndarray) -> None: ...
    def close(self, finish: bool) -> None: ...


class _Gif:
    """Holds the pictures, in few colours, until all are there."""

    def __init__(self, path: Path, frames_per_second: float):
        self.path, self.pause = path, round(1000 / min(frames_per_second, FASTEST_GIF))
        self.pictures: list[Any] = []

    def add(self, picture: np.ndarray) -> None:
        from PIL import Image

        image = Image.fromarray(picture)
        if self.pictures:  # the colours of the first, if they are enough: then only what changes is written
            alike = image.quantize(palette=self.pictures[0], dither=Image.Dither.NONE)
            error = np.abs(np.asarray(alike.convert("RGB"), np.int16) - picture)
            image = alike if error.mean() < 2.0 else image.quantize(COLOURS, dither=Image.Dither.NONE)
        else:
            image = image.quantize(COLOURS, dither=Image.Dither.NONE)
        self.pictures.append(image)

    def close(self, finish: bool) -> None:
        if finish:
            first, *rest = self.pictures
            first.save(
                self.path, save_all=True, append_images=rest, duration=self.pause, loop=0, optimize=False, disposal=1
            )


class _Mp4:
    """Hands every picture to ffmpeg, in a process of its own. (What imageio-ffmpeg offers for that forks this process,
    which JAX's threads do not allow.)"""

    def __init__(self, path: Path, frames_per_second: float):
        try:
            import imageio_ffmpeg

            self.program = imageio_ffmpeg.get_ffmpeg_exe()
        except (ImportError, RuntimeError):
            path.unlink(missing_ok=True)
            raise BadOption(
                "An .mp4 needs imageio-ffmpeg: pip install 'motet[video]'. Without it, name a file that ends in .gif."
            ) from None
        self.path, self.frames_per_second = path, frames_per_second
        self.process: subprocess.Popen[bytes] | None = None

    def add(self, picture: np.ndarray) -> None:
        height, width = picture.shape[:2]
        if height % 2 or width % 2:  # the usual coding of colours needs even sizes
            picture = np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), "edge")
        if self.process is None:
            self.process = self._start(*picture.shape[:2])
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; `close` asks why
            self.process.stdin.write(picture.tobytes())

    def _start(self, height: int, width: int) -> subprocess.Popen[bytes]:
        taken = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self.frames_per_second:g}"]
        given = ["-an", "-c:v", "libx264", "-crf", "20", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
        command = [self.program, "-v", "error", "-y", *taken, "-i", "-", *given, str(self.path)]
        # Ctrl-C is for this process, which then ends the other one.
        return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0)

    def close(self, finish: bool) -> None:
        if self.process is None:
            return
        if not finish:
            self.process.kill()
        _, said = self.process.communicate()
        if finish and self.process.returncode:
            raise OSError(f"ffmpeg says: {said.decode(errors='replace').strip()[-300:]}")
