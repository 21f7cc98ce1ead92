"""A right solution of lab 09: a program copies one head of one token."""


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
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    slot = tl.load(slot_mapping + token)
    if slot < 0:
        return
    size = HD // tl.num_programs(1)
    within = tl.arange(0, TILE)
    inside = within < size
    number = head * size + within
    block = slot // BLOCK_SIZE
    place = block * block_stride + (slot - block * BLOCK_SIZE) * page_stride + number
    tl.store(k_cache + place, tl.load(key + token * key_stride + number, mask=inside, other=0.0), mask=inside)
    tl.store(v_cache + place, tl.load(value + token * value_stride + number, mask=inside, other=0.0), mask=inside)


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
    if slot_mapping.numel() == 0:
        return
    heads, size = key.shape[1:]
    launch(
        reshape_and_cache_kernel,
        (slot_mapping.numel(), heads),
        key=key,
        value=value,
        k_cache=k_cache,
        v_cache=v_cache,
        slot_mapping=slot_mapping,
        key_stride=key.stride(0),
        value_stride=value.stride(0),
        block_stride=k_cache.stride(0),
        page_stride=k_cache.stride(1),
        HD=heads * size,
        BLOCK_SIZE=k_cache.shape[1],
        TILE=triton.next_power_of_2(size),
        num_warps=4,
    )
