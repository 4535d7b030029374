"""Claims about decoding: the pixels of Pillow, upright, of every kind of file, and no others."""

import io
import struct
import time
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from keras_transformers.data.array_files import is_animated_webp, read_array
from keras_transformers.vision.decoding import decoded, is_animated, measured
from tests.animations import animated_webp

RNG = np.random.default_rng(0)
HEIGHT, WIDTH = 37, 53  # no multiples of a JPEG's blocks
NOISE = RNG.integers(0, 256, (HEIGHT, WIDTH, 3), dtype="uint8")
ROWS, COLUMNS = np.mgrid[:HEIGHT, :WIDTH]
WAVES = np.stack([np.sin(ROWS / 9 + c) + np.cos(COLUMNS / (7 + c)) for c in range(3)], -1)
PICTURE = Image.fromarray(np.uint8(np.clip(127 + 60 * WAVES + NOISE / 8, 0, 255)))
ORIENTATION = 0x0112
GRAPHS = {
    channels: tf.function(
        lambda file, channels=channels: decoded(file, channels),
        input_signature=[tf.TensorSpec([], tf.string)],
    )
    for channels in (1, 3)
}


def file_of(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def exif(orientation, big=False, before=0):
    """EXIF's block with so many other entries before the orientation."""
    order = ">" if big else "<"
    entries = [struct.pack(f"{order}HHII", 0x80 + i, 4, 1, 7) for i in range(before)]
    entries.append(struct.pack(f"{order}HHIHH", ORIENTATION, 3, 1, orientation, 0))
    head = (b"MM\0*" if big else b"II*\0") + struct.pack(f"{order}I", 8)
    directory = struct.pack(f"{order}H", len(entries)) + b"".join(entries)
    return b"Exif\0\0" + head + directory + b"\0\0\0\0"


def pillow(file, channels):
    """What Pillow makes of a file."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(file)))
    grey = image.mode in ("1", "L", "LA")
    image = image.convert("L" if grey else "RGB")
    if channels == 1:
        image = image.convert("L")
    pixels = np.asarray(image.convert("RGB") if channels == 3 else image)
    return pixels.reshape(*pixels.shape[:2], channels)


PALETTE = PICTURE.quantize(50)
ALPHA = Image.fromarray(np.dstack([np.asarray(PICTURE), NOISE[..., 0]]))
KINDS = {
    "JPEG 4:4:4": ("JPEG", PICTURE, {"subsampling": 0, "quality": 90}),
    "JPEG 4:2:2": ("JPEG", PICTURE, {"subsampling": 1, "quality": 75}),
    "JPEG 4:2:0": ("JPEG", PICTURE, {"subsampling": 2, "quality": 30}),
    "JPEG of noise": ("JPEG", Image.fromarray(NOISE), {"quality": 95}),
    "JPEG, progressive": ("JPEG", PICTURE, {"progressive": True}),
    "JPEG, grey": ("JPEG", PICTURE.convert("L"), {}),
    "PNG": ("PNG", PICTURE, {}),
    "PNG, grey": ("PNG", PICTURE.convert("L"), {}),
    "PNG, grey with alpha": ("PNG", PICTURE.convert("LA"), {}),
    "PNG, alpha": ("PNG", ALPHA, {}),
    "PNG, palette": ("PNG", PALETTE, {}),
    "PNG, black and white": ("PNG", PICTURE.convert("1"), {}),
    "GIF": ("GIF", PALETTE, {}),
    "GIF, two frames": ("GIF", PALETTE, {"save_all": True, "append_images": [PALETTE.rotate(9)]}),
    "BMP": ("BMP", PICTURE, {}),
    "BMP, grey": ("BMP", PICTURE.convert("L"), {}),
    "BMP, palette": ("BMP", PALETTE, {}),
    "WebP": ("WEBP", PICTURE, {"quality": 60}),
    "WebP, lossless": ("WEBP", PICTURE, {"lossless": True}),
    "WebP, alpha": ("WEBP", ALPHA, {"lossless": True, "exact": True}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_pixels_are_pillows_for_grey_and_for_coloured_models(kind):
    name, image, options = KINDS[kind]
    file = file_of(image, name, **options)
    for channels in (1, 3):
        found = GRAPHS[channels](file).numpy()
        np.testing.assert_array_equal(found, pillow(file, channels))
    height, width, bands, turned = map(int, measured(file))
    grey = image.mode in ("1", "L", "LA")
    assert (height, width, bands, turned) == (HEIGHT, WIDTH, 1 if grey else 3, 1)


def test_a_jpeg_in_four_colours_is_close_to_pillows():
    file = file_of(PICTURE.convert("CMYK"), "JPEG", quality=95)
    difference = np.abs(GRAPHS[3](file).numpy().astype(int) - pillow(file, 3))
    assert difference.max() <= 2


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_upright_as_their_exif_says(orientation):
    files = [
        file_of(PICTURE, kind, exif=exif(orientation, big, before), **options)
        for kind, options in (("JPEG", {}), ("PNG", {}), ("WEBP", {"lossless": True}))
        for big, before in ((False, 0), (True, 3))
    ]
    for file in files:
        expected = pillow(file, 3)
        assert expected.shape[:2] == ((HEIGHT, WIDTH) if orientation < 5 else (WIDTH, HEIGHT))
        np.testing.assert_array_equal(GRAPHS[3](file), expected)
        height, width, _, turned = map(int, measured(file))
        assert (height, width, turned) == (*expected.shape[:2], orientation)
    tiff = file_of(PICTURE, "TIFF", tiffinfo={ORIENTATION: orientation})
    np.testing.assert_array_equal(read_array(tiff), pillow(tiff, 3))


def test_exif_is_found_behind_other_segments():
    icc = bytes(RNG.integers(0, 256, 150_000, dtype="uint8"))  # in three segments
    file = file_of(PICTURE, "JPEG", icc_profile=icc, comment=b"hello", dpi=(72, 72))
    end = 2 + 2 + int.from_bytes(file[4:6], "big")
    segment = exif(6, before=20)
    segment = b"\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment
    frame = file.index(b"\xff\xdb\x00\x43")  # the tables, behind all others
    for index in (end, frame):
        turned = file[:index] + segment + file[index:]
        np.testing.assert_array_equal(GRAPHS[3](turned), pillow(turned, 3))
        assert int(measured(turned)[3]) == 6


@pytest.mark.parametrize(
    "block",
    [
        exif(0),
        exif(9),
        exif(60000),
        b"Exif\0\0",
        b"Exif\0\0II*\0",
        exif(6)[:20],
        exif(6)[:16] + b"\xff\xff" + exif(6)[18:],
        b"Exif\0\0II*\0\xff\xff\xff\xff" + b"\0" * 30,
        b"http://ns.adobe.com/xap/1.0/\0<x/>",
    ],
)
def test_exif_without_a_meaning_turns_nothing(block):
    segment = b"\xff\xe1" + (len(block) + 2).to_bytes(2, "big") + block
    plain = file_of(PICTURE, "JPEG")
    file = plain[:2] + segment + plain[2:]
    np.testing.assert_array_equal(GRAPHS[3](file), pillow(plain, 3))


@pytest.mark.parametrize("kind", ["JPEG 4:2:0", "PNG", "GIF", "BMP", "BMP, palette", "WebP"])
def test_what_is_cut_off_anywhere_is_refused(kind):
    name, image, options = KINDS[kind]
    if name in ("JPEG", "PNG", "WEBP"):
        options = {**options, "exif": exif(6)}
    file = file_of(image, name, **options)
    for index in {1, 3, 8, 12, 20, 40, 52, len(file) // 2, len(file) - 9}:
        with pytest.raises(tf.errors.InvalidArgumentError):
            GRAPHS[3](file[:index])


def test_packed_bitmaps_are_refused_and_not_misread():
    file = bytearray(file_of(PALETTE, "BMP"))
    file[30:34] = (1).to_bytes(4, "little")  # run lengths
    with pytest.raises(tf.errors.InvalidArgumentError, match="packed"):
        GRAPHS[3](bytes(file))


def test_random_bytes_behind_a_known_start_never_hang():
    for start in (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", b"GIF89a", b"RIFF\0\0\0\0WEBP"):
        for seed in range(3):
            rest = np.random.default_rng(seed).integers(0, 256, 300, dtype="uint8").tobytes()
            with pytest.raises(tf.errors.InvalidArgumentError):
                GRAPHS[3](start + rest)


@pytest.mark.parametrize("alpha", [False, True])
def test_animated_webp_is_refused_before_it_is_decoded(alpha):
    file = animated_webp(alpha)
    for read in (GRAPHS[1], GRAPHS[3], measured, lambda encoded: decoded(encoded, 3)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="animated WebP files are not re"):
            read(tf.constant(file))


def test_the_graph_and_python_agree_on_what_is_animated():
    files = [file_of(image, name, **options) for name, image, options in KINDS.values()]
    files += [animated_webp()[:length] for length in (0, 1, 12, 16, 20, 21, 22, 40)]
    header = animated_webp()[:20]
    files += [header + bytes([flags]) for flags in range(256)]
    files += [b"RIFX" + header[4:] + b"\xff", header[:12] + b"VP8L" + header[16:] + b"\xff"]
    for file in files:
        assert bool(is_animated(tf.constant(file))) == is_animated_webp(file)
    assert [is_animated_webp(header + bytes([flags])) for flags in range(4)] == [0, 0, 1, 1]
    assert not any(map(is_animated_webp, files[: len(KINDS)]))


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(height, width, chunks=b""):
    """A grey PNG file without light, which is small however large the image is."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    compressor = zlib.compressobj(9)
    data = b"".join(compressor.compress(bytes(width + 1)) for _ in range(height))
    data = chunk(b"IDAT", data + compressor.flush())
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunks + data + chunk(b"IEND", b"")


def animated_gif(frames, **options):
    others = [PALETTE.rotate(9 * i) for i in range(1, frames)]
    return file_of(PALETTE, "GIF", save_all=True, append_images=others, **options)


def seconds_of(file):
    """The least of three, for other processes slow one down."""
    GRAPHS[3](file)
    times = []
    for _ in range(3):
        begun = time.process_time()
        GRAPHS[3](file)
        times.append(time.process_time() - begun)
    return min(times)


def test_parts_and_fill_bytes_of_a_file_take_little_time():
    """A hundred thousand took seconds to minutes, each a step of the graph."""
    plain = file_of(PICTURE, "JPEG")
    fill = plain[:2] + b"\xff" * 100_000 + plain[2:]
    chunks = png(5, 5, chunk(b"abCd", b"") * 100_000)
    for file in (fill, chunks):
        assert seconds_of(file) < 0.5
    np.testing.assert_array_equal(GRAPHS[3](fill), GRAPHS[3](plain))


def test_exif_is_found_behind_fill_bytes():
    segment = exif(6)
    segment = b"\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment
    plain = file_of(PICTURE, "JPEG")
    for fill in (1, 2, 3, 65_535, 65_536, 65_537, 200_000):
        turned = plain[:2] + b"\xff" * fill + segment + plain[2:]
        np.testing.assert_array_equal(GRAPHS[3](turned), pillow(turned, 3))


def too_large():
    """Files of few bytes that stand for many pixels, each with what the message says of it."""
    bitmap = bytearray(file_of(PICTURE, "BMP"))
    bitmap[18:26] = struct.pack("<ii", 50_000, -50_000)  # from above
    canvas = bytearray(file_of(ALPHA, "WEBP", exif=exif(6)))
    assert canvas[12:16] == b"VP8X"
    canvas[24:30] = b"\xff" * 6
    lossy = bytearray(file_of(PICTURE, "WEBP"))
    lossy[26:30] = b"\xff\x3f" * 2
    lossless = bytearray(file_of(PICTURE, "WEBP", lossless=True))
    lossless[21:25] = b"\xff" * 4
    frame = bytearray(file_of(PALETTE, "GIF"))
    descriptor = frame.index(b",\0\0\0\0")
    frame[descriptor + 5 : descriptor + 9] = b"\xff" * 4
    screen = bytearray(file_of(PALETTE, "GIF"))
    screen[6:10] = b"\xff" * 4
    photo = bytearray(file_of(PICTURE, "JPEG"))
    start = photo.index(b"\xff\xc0")
    photo[start + 5 : start + 9] = b"\xff\0" * 2
    scans = file_of(PICTURE, "JPEG", progressive=True)
    scan = scans[scans.rindex(b"\xff\xda") : -2]
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1_000_000)))
    pixels = "at most 89478485 pixels"
    return {
        "PNG, a side": (png(70_000, 1), pixels),
        "PNG": (png(5, 5).replace(b"\0\0\0\5", b"\0\0\xff\0"), pixels),
        "PNG, texts": (png(5, 5, 100 * text), "at most 64 compressed texts"),
        "BMP": (bitmap, pixels),
        "WebP, extended": (canvas, pixels),
        "WebP": (lossy, pixels),
        "WebP, lossless": (lossless, pixels),
        "GIF, a frame": (frame, pixels),
        "GIF": (screen, pixels),
        "GIF, blocks": (screen[:6] + b"\1\0\1\0\0\0\0" + b"!\0\0" * 10_000, "whole frame"),
        "JPEG": (photo, pixels),
        "JPEG, scans": (scans[:-2] + scan * 100 + b"\xff\xd9", "at most 64 scans"),
    }


def test_what_would_expand_out_of_proportion_is_refused_before_it_is_decoded():
    for name, (file, message) in too_large().items():
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            GRAPHS[3](bytes(file))
        assert message in str(error.value), name


def test_of_an_animated_gif_the_first_frame_alone_is_read():
    file = animated_gif(5)
    np.testing.assert_array_equal(GRAPHS[3](file), pillow(file, 3))
    assert int(GRAPHS[3](file[: len(file) // 2]).shape[0]) == HEIGHT  # others may be cut off
    assert file.count(b",\0\0\0\0") > 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_changed_files_are_read_or_refused(seed):
    rng = np.random.default_rng(seed)
    for name, image, options in KINDS.values():
        file = bytearray(file_of(image, name, **options))
        for _ in range(rng.integers(1, 6)):
            limit = len(file) if rng.random() < 0.5 else min(len(file), 100)
            file[rng.integers(limit)] = rng.choice([0, 1, 127, 128, 255])
        begun = time.process_time()
        try:
            GRAPHS[3](bytes(file))
        except tf.errors.InvalidArgumentError:
            pass
        assert time.process_time() - begun < 5
