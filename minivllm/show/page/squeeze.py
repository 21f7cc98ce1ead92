"""Deflate, so that a page in a notebook's file is a third of its size.

Owns: one way to compress, the same bytes on every machine. zlib's own compressor gives others in other builds, and a
notebook that is executed again must not differ.
Interface: deflate. zlib and every browser (`DecompressionStream("deflate-raw")`) undo it.
Must not know: what is compressed.

One block with the fixed codes of RFC 1951: literals, and copies of what stood at most 32 kB before.
"""

WINDOW, SHORTEST, LONGEST = 32_768, 3, 258
TRIES = 24  # places that are compared for the longest copy
END = 256  # the symbol that ends the block


def _ranges(first: int, extra_bits: list[int]) -> list[tuple[int, int]]:
    """(smallest value, extra bits) of each code."""
    table = []
    for bits in extra_bits:
        table.append((first, bits))
        first += 1 << bits
    return table


LENGTHS = [*_ranges(SHORTEST, [0] * 8 + [bits for bits in range(1, 6) for _ in range(4)]), (LONGEST, 0)]
DISTANCES = _ranges(1, [0] * 4 + [bits for bits in range(1, 14) for _ in range(2)])


class _Bits:
    """Bits, the lowest of each byte first."""

    def __init__(self) -> None:
        self.done, self.held, self.count = bytearray(), 0, 0

    def put(self, value: int, bits: int) -> None:
        self.held |= value << self.count
        self.count += bits
        while self.count >= 8:
            self.done.append(self.held & 255)
            self.held >>= 8
            self.count -= 8

    def symbol(self, symbol: int) -> None:
        """A literal, the end, or the code of a length: Huffman codes go highest bit first."""
        if symbol < 144:
            code, bits = 0x30 + symbol, 8
        elif symbol < 256:
            code, bits = 0x190 + symbol - 144, 9
        elif symbol < 280:
            code, bits = symbol - 256, 7
        else:
            code, bits = 0xC0 + symbol - 280, 8
        self.put(_reversed(code, bits), bits)

    def copy(self, length: int, distance: int) -> None:
        code = _code_of(length, LENGTHS)
        self.symbol(257 + code)
        self.put(length - LENGTHS[code][0], LENGTHS[code][1])
        code = _code_of(distance, DISTANCES)
        self.put(_reversed(code, 5), 5)
        self.put(distance - DISTANCES[code][0], DISTANCES[code][1])


def _reversed(code: int, bits: int) -> int:
    return int(f"{code:0{bits}b}"[::-1], 2)


def _code_of(value: int, table: list[tuple[int, int]]) -> int:
    return max(code for code, (smallest, _) in enumerate(table) if smallest <= value)


def deflate(data: bytes) -> bytes:
    """`data` as a raw deflate stream.

    vLLM: none, see minivllm.show.page.render
    """
    out, at = _Bits(), 0
    seen: dict[bytes, list[int]] = {}  # three bytes -> where they began
    out.put(0b011, 3)  # the last block, fixed codes
    while at < len(data):
        length, distance = _longest(data, at, seen)
        if length:
            out.copy(length, distance)
        else:
            out.symbol(data[at])
        for place in range(at, at + max(length, 1)):
            seen.setdefault(data[place : place + SHORTEST], []).append(place)
        at += max(length, 1)
    out.symbol(END)
    out.put(0, -out.count % 8)
    return bytes(out.done)


def _longest(data: bytes, at: int, seen: dict[bytes, list[int]]) -> tuple[int, int]:
    """(length, distance) of the longest copy that can stand at `at`, the nearest of these; (0, 0) if there is none."""
    best, distance, most = 0, 0, min(LONGEST, len(data) - at)
    for place in reversed(seen.get(data[at : at + SHORTEST], [])[-TRIES:]):
        if at - place > WINDOW or most < SHORTEST:
            break
        if data[place + best : place + best + 1] != data[at + best : at + best + 1]:
            continue  # it can't be longer
        length = SHORTEST
        while length < most and data[place + length] == data[at + length]:
            length += 1
        if length > best:
            best, distance = length, at - place
            if best == most:
                break
    return best, distance
