"""A right solution of lab 09: a program copies a tile of four tokens; the first argument of its grid is the tile."""


@triton.jit
def reshape_and_cache_kernel(
    key,  # [T', H, D], a token's H * D numbers lie side by side
    value,  # the same, with a stride of its own
    k_cache,  # [blocks, BLOCK_SIZE, H, D]
    v_cache,
    slot_mapping,  # int64[T]
    key_stride,  # elements from token to token
    value_stride,
    block_stride,  # elements from block to block, in both caches
    page_stride,  # elements from token to token within a block
    HD: tl.constexpr,  # H * D
    BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,  # numbers that a program copies, a power of two
):
    tokens = tl.program_id(1) * 4 + tl.arange(0, 4)
    numbers = tl.program_id(0) * TILE + tl.arange(0, TILE)
    # the last program may have fewer than four tokens: their number is not known here, so the launch says it
    slots = tl.load(slot_mapping + tokens, mask=tokens < tl.num_programs(2), other=-1)
    if tl.program_id(2) == 0:
        wanted = (slots >= 0)[:, None] & (numbers < HD)[None, :]
        lines = slots // BLOCK_SIZE * block_stride + slots % BLOCK_SIZE * page_stride
        places = lines[:, None] + numbers[None, :]
        k = tl.load(key + tokens[:, None] * key_stride + numbers[None, :], mask=wanted)
        v = tl.load(value + tokens[:, None] * value_stride + numbers[None, :], mask=wanted)
        tl.store(k_cache + places, k, mask=wanted)
        tl.store(v_cache + places, v, mask=wanted)


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    tuning: WriteTuning | None = None,
    launch: Launch = launch,
) -> None:
    num_tokens = slot_mapping.shape[0]
    numbers = key.shape[1] * key.shape[2]
    if not num_tokens:
        return
    launch(
        reshape_and_cache_kernel,
        (triton.cdiv(numbers, 32), triton.cdiv(num_tokens, 4), num_tokens),
        key=key,
        value=value,
        k_cache=k_cache,
        v_cache=v_cache,
        slot_mapping=slot_mapping,
        key_stride=key.stride(0),
        value_stride=value.stride(0),
        block_stride=k_cache.stride(0),
        page_stride=k_cache.stride(1),
        HD=numbers,
        BLOCK_SIZE=k_cache.shape[1],
        TILE=32,
        num_warps=4,
    )
