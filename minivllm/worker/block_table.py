"""BlockTable: the block ids of every row, as the array that the kernels read.

Owns: int32[max_num_seqs, max_blocks_per_row]. Entries beyond a row's blocks are 0, the null block.
Must not know: requests, or which blocks are shared.
"""

import numpy as np


class BlockTable:
    """vLLM: v1/worker/block_table.py::BlockTable (simplified: one block size for manager and kernels)"""

    def __init__(self, max_num_reqs: int, max_num_blocks_per_req: int) -> None:
        self.block_table = np.zeros((max_num_reqs, max_num_blocks_per_req), dtype=np.int32)
        self.num_blocks_per_row = np.zeros(max_num_reqs, dtype=np.int32)

    def add_row(self, block_ids: list[int], row: int) -> None:
        """Replace what the row held.

        vLLM: v1/worker/block_table.py::BlockTable.add_row
        """
        self.clear_row(row)
        self.append_row(block_ids, row)

    def append_row(self, block_ids: list[int], row: int) -> None:
        """vLLM: v1/worker/block_table.py::BlockTable.append_row"""
        start = self.num_blocks_per_row[row]
        self.block_table[row, start : start + len(block_ids)] = block_ids
        self.num_blocks_per_row[row] += len(block_ids)

    def clear_row(self, row: int) -> None:
        """vLLM: v1/worker/block_table.py::BlockTable.clear_row"""
        self.block_table[row, : self.num_blocks_per_row[row]] = 0
        self.num_blocks_per_row[row] = 0

    def move_row(self, source: int, target: int) -> None:
        """Put a row into an empty one.

        vLLM: v1/worker/block_table.py::BlockTable.move_row
        """
        block_ids = self.get_row(source)
        self.clear_row(source)
        self.add_row(block_ids, target)

    def get_row(self, row: int) -> list[int]:
        """The block ids of a row, without the padding."""
        return self.block_table[row, : self.num_blocks_per_row[row]].tolist()
