"""A right solution of lab 09: a program copies one token, tile after tile."""


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
    token = tl.program_id(0)
    slot = tl.load(slot_mapping + token)
    if slot >= 0:
        target = (slot // BLOCK_SIZE) * block_stride + (slot % BLOCK_SIZE) * page_stride
        for first in range(0, HD, TILE):
            i = first + tl.arange(0, TILE)
            tl.store(k_cache + target + i, tl.load(key + token * key_stride + i, mask=i < HD), mask=i < HD)
            tl.store(v_cache + target + i, tl.load(value + token * value_stride + i, mask=i < HD), mask=i < HD)


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
    tokens = len(slot_mapping)
    if tokens:
        launch(
            reshape_and_cache_kernel,
            (tokens,),
            key=key,
            value=value,
            k_cache=k_cache,
            v_cache=v_cache,
            slot_mapping=slot_mapping,
            key_stride=key.stride(0),
            value_stride=value.stride(0),
            block_stride=k_cache.stride(0),
            page_stride=k_cache.stride(1),
            HD=key[0].numel(),
            BLOCK_SIZE=k_cache.shape[1],
            TILE=16,
            num_warps=4,
        )
