"""npu_fusion_attention against a plain composition: layouts, heads, masks, position codes, sequences, pieces."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from opassay.kernels.fused import FUSED, attention_core, attention_sdpa, cuda_equivalent
from opassay.kernels.fused.attention_core import Setting, attention
from opassay.kernels.fused.attention_mask import Mask, compressed_mask

CALL = FUSED["npu_fusion_attention"].call


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-13)


def plain(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float = 1.0,
    masked: torch.Tensor | None = None,
    pse: torch.Tensor | None = None,
    kept: torch.Tensor | None = None,
) -> torch.Tensor:
    """By einsum, head by head: each query head h reads the key head h N2 // N1. Rows masked as a whole give 0."""
    heads = []
    for h in range(q.shape[1]):
        j = h * k.shape[1] // q.shape[1]
        scores = torch.einsum("bid,bjd->bij", q[:, h], k[:, j])
        if pse is not None:
            scores = scores + pse.expand(q.shape[0], q.shape[1], *scores.shape[1:])[:, h]
        parts = torch.exp(scores * scale)
        if masked is not None:
            parts = parts * ~masked.expand(q.shape[0], q.shape[1], *scores.shape[1:])[:, h]
        total = parts.sum(-1, keepdim=True)
        weights = torch.where(total > 0, parts / total, 0)
        if kept is not None:
            weights = weights * kept[:, h]
        heads.append(torch.einsum("bij,bjd->bid", weights, v[:, j]))
    return torch.stack(heads, 1)


def rule(rows: int, keys: int, mode: int, before: int = 0, after: int = 0, prefix: int = 0) -> torch.Tensor:
    """Masked pairs of a sparse mode, pair by pair as the document draws them."""
    off = keys - rows

    def masked(i: int, j: int) -> bool:
        return {
            2: j > i,
            3: j > i + off,
            4: j > i + off + after or j < i + off - before,
            6: j > i + off and j >= prefix,
        }[mode]

    return torch.tensor([[masked(i, j) for j in range(keys)] for i in range(rows)])


QKV = (drawn(2, 4, 5, 6), drawn(2, 2, 8, 6, seed=1), drawn(2, 2, 8, 3, seed=2))


def laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    rows = x.transpose(1, 2)
    return {
        "BNSD": x,
        "BSND": rows,
        "BSH": rows.flatten(2),
        "SBH": rows.flatten(2).transpose(0, 1),
    }[layout]


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_layouts_and_groups_of_heads(layout: str, key_heads: int) -> None:
    q, k, v = drawn(2, 4, 5, 6), drawn(2, key_heads, 8, 6, seed=1), drawn(2, key_heads, 8, 3, seed=2)
    out, top, total = CALL(*(laid_out(x, layout) for x in (q, k, v)), 4, layout.lower(), scale=0.4)
    close(out, laid_out(plain(q, k, v, 0.4), layout))
    scores = torch.einsum("bhid,bhjd->bhij", q, k.repeat_interleave(4 // key_heads, 1)) * 0.4
    assert top.shape == total.shape == (2, 4, 5, 8)
    for copy in range(8):
        close(top[..., copy] + total[..., copy].log(), scores.logsumexp(-1))
        close(top[..., copy], scores.amax(-1))


def test_the_scale_is_1_unless_given() -> None:
    close(CALL(*QKV, 4, "BNSD")[0], plain(*QKV, scale=1.0))


@pytest.mark.parametrize("shape", [(5, 8), (1, 1, 5, 8), (2, 1, 5, 8), (2, 4, 5, 8), (1, 1, 1, 8)])
@pytest.mark.parametrize("mode", [0, 1, 3, 5])
def test_a_full_mask_is_taken_as_it_is(shape: tuple[int, ...], mode: int) -> None:
    mask = drawn(*shape, seed=5) > 0.4
    for given in (mask, mask.to(torch.uint8)):
        out, _, _ = CALL(*QKV, 4, "BNSD", atten_mask=given, sparse_mode=mode, prefix=[1, 1])
        close(out, plain(*QKV, masked=mask.reshape((1,) * (4 - mask.dim()) + mask.shape)))


@pytest.mark.parametrize(
    ("mode", "windows"),
    [(2, (0, 0)), (3, (0, 0)), (4, (2, 1)), (4, (1, -1)), (4, (3, 2147483647)), (4, (2147483647, 0))],
)
@pytest.mark.parametrize(("rows", "keys"), [(5, 8), (8, 5), (6, 6)])
def test_compressed_masks_stand_for_their_rule(mode: int, windows: tuple[int, int], rows: int, keys: int) -> None:
    q, k, v = drawn(1, 2, rows, 4), drawn(1, 2, keys, 4, seed=1), drawn(1, 2, keys, 4, seed=2)
    options = {"sparse_mode": mode, "pre_tockens": windows[0], "next_tockens": windows[1]}
    out, top, total = CALL(q, k, v, 2, "BNSD", scale=0.5, atten_mask=compressed_mask(mode), **options)
    masked = rule(rows, keys, mode, *windows)
    close(out, plain(q, k, v, 0.5, masked))
    empty = masked.all(-1)
    assert (top[0, :, empty] == -torch.inf).all()
    assert (total[0, :, empty] == 0).all()
    instead = cuda_equivalent("npu_fusion_attention")
    assert instead is not None
    close(instead(q, k, v, 2, "BNSD", scale=0.5, atten_mask=compressed_mask(mode), **options)[0], out)


def test_the_compressed_prefix() -> None:
    mask = torch.stack([rule(5, 8, 6, prefix=4), rule(5, 8, 6, prefix=7)])[:, None]
    out, _, _ = CALL(*QKV, 4, "BNSD", atten_mask=compressed_mask(6), sparse_mode=6, prefix=[4, 7])
    close(out, plain(*QKV, masked=mask))
    close(out, CALL(*QKV, 4, "BNSD", atten_mask=mask, sparse_mode=5, prefix=[4, 7])[0])


@pytest.mark.parametrize("mode", range(9))
def test_without_a_mask_nothing_is_masked(mode: int) -> None:
    out, _, _ = CALL(*QKV, 4, "BNSD", sparse_mode=mode, pre_tockens=0, next_tockens=0)
    close(out, plain(*QKV))


def test_rows_masked_as_a_whole_are_0_and_pass_no_gradient() -> None:
    q, k, v = (x.clone().requires_grad_() for x in QKV)
    mask = torch.zeros(5, 8, dtype=torch.bool)
    mask[1] = True
    for call in (CALL, cuda_equivalent("npu_fusion_attention")):
        assert call is not None
        out = call(q, k, v, 4, "BNSD", atten_mask=mask)[0]
        assert not out[:, :, 1].any()
        grads = torch.autograd.grad(out.sum(), (q, k, v))
        assert not grads[0][:, :, 1].any()
        assert all(grad.isfinite().all() for grad in grads)


def test_torch_is_not_asked_for_a_row_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of its backends and versions answer nan."""
    asked: list[torch.Tensor] = []
    real = attention_sdpa.functional.scaled_dot_product_attention

    def watched(*args: Any, attn_mask: torch.Tensor, scale: float) -> torch.Tensor:
        asked.append(attn_mask)
        return real(*args, attn_mask=attn_mask, scale=scale)

    monkeypatch.setattr(attention_sdpa.functional, "scaled_dot_product_attention", watched)
    mask = torch.ones(5, 8, dtype=torch.bool).triu(2)
    mask[1] = True
    instead = cuda_equivalent("npu_fusion_attention")
    assert instead is not None
    for pse in (None, drawn(1, 4, 5, 8)):
        close(instead(*QKV, 4, "BNSD", pse=pse, atten_mask=mask)[0], plain(*QKV, masked=mask, pse=pse))
    takes_part, bias = asked
    assert takes_part.any(-1).all()
    assert bias.isfinite().any(-1).all()


def test_great_scores_do_not_overflow() -> None:
    """Scores of 1e8 and one less."""
    q, k, v = (
        torch.tensor(x, dtype=torch.float64).reshape(1, 1, -1, 1) for x in ([1e4], [1e4, 1e4 - 1e-4], [1.0, 0.0])
    )
    assert CALL(q, k, v, 1, "BNSD")[0].item() == pytest.approx(1 / (1 + math.exp(-1.0)), rel=1e-6)


@pytest.mark.parametrize("shape", [(2, 4, 5, 8), (1, 4, 5, 8), (2, 4, 1, 8)])
def test_position_codes_are_added_before_the_scale(shape: tuple[int, ...]) -> None:
    pse = drawn(*shape, seed=6)
    close(CALL(*QKV, 4, "BNSD", pse=pse, scale=0.3)[0], plain(*QKV, 0.3, pse=pse))


def codes_of_distance(heads: int, rows: int) -> torch.Tensor:
    """Depend on i - j alone, and not linearly: a softmax would not notice a shift then."""
    place = torch.arange(rows, dtype=torch.float64)
    slopes = torch.arange(1, heads + 1, dtype=torch.float64).reshape(1, heads, 1, 1) / 8
    return slopes * (place[None, :] - place[:, None]).abs().sqrt()


def test_position_codes_may_be_the_last_1024_rows() -> None:
    rows = 1030
    q, k, v = drawn(1, 2, rows, 2), drawn(1, 2, rows, 2, seed=1), drawn(1, 2, rows, 2, seed=2)
    pse = codes_of_distance(2, rows)
    options: dict[str, Any] = {"atten_mask": compressed_mask(2), "sparse_mode": 2, "scale": 0.7}
    whole = CALL(q, k, v, 2, "BNSD", pse=pse, **options)[0]
    close(CALL(q, k, v, 2, "BNSD", pse=pse[:, :, -1024:], **options)[0], whole)
    close(whole[:, :, -2:], plain(q[:, :, -2:], k, v, 0.7, rule(rows, rows, 2)[-2:], pse[:, :, -2:]))


def test_dropped_weights() -> None:
    keep = drawn(2, 4, 5, 8, seed=7) > -0.5
    with pytest.raises(ValueError, match=r"dropout inside the operator \(keep_prob 0.8\)"):
        CALL(*QKV, 4, "BNSD", keep_prob=0.8)
    q, k, v = (x.clone().requires_grad_() for x in QKV)
    out = CALL(q, k, v, 4, "BNSD", keep_prob=0.8, drop_mask=keep)[0]
    expected = plain(q, k, v, kept=keep / 0.8)
    close(out, expected)
    grad = drawn(*out.shape, seed=8)
    ours, theirs = (torch.autograd.grad(y, (q, k, v), grad) for y in (out, expected))
    for a, b in zip(ours, theirs, strict=True):
        close(a, b)


def parts(mode: int, number: int, rows: int, keys: int, windows: tuple[int, int]) -> torch.Tensor | None:
    """Mask of sequence ``number`` of three: mode 7 has its band in the last one, mode 8 in the first."""
    if mode in (7, 8):
        band = number == (2 if mode == 7 else 0)
        return rule(rows, keys, 4, *windows) if band else rule(rows, keys, 3 if mode == 7 else 2)
    return None if mode == 0 else rule(rows, keys, mode, *windows, prefix=(1, 2, 3)[number])


@pytest.mark.parametrize("mode", [0, 2, 3, 4, 6, 7, 8])
def test_sequences_are_attended_by_themselves(mode: int) -> None:
    q, k, v = drawn(9, 4, 6), drawn(11, 2, 6, seed=1), drawn(11, 2, 3, seed=2)
    options: dict[str, Any] = {"sparse_mode": mode, "pre_tockens": 2, "next_tockens": 1, "prefix": [1, 2, 3]}
    out, top, total = CALL(
        q,
        k,
        v,
        4,
        "TND",
        atten_mask=compressed_mask(mode),
        actual_seq_qlen=[2, 5, 9],
        actual_seq_kvlen=[3, 6, 11],
        **options,
    )
    for number, (qs, ks) in enumerate([((0, 2), (0, 3)), ((2, 5), (3, 6)), ((5, 9), (6, 11))]):
        alone = (q[slice(*qs)].transpose(0, 1)[None], *(x[slice(*ks)].transpose(0, 1)[None] for x in (k, v)))
        masked = parts(mode, number, qs[1] - qs[0], ks[1] - ks[0], (2, 1))
        close(out[slice(*qs)].transpose(0, 1)[None], plain(*alone, masked=masked))
    assert top.shape == total.shape == (9, 4, 8)


def test_a_full_mask_of_the_longest_sequence_serves_the_others_with_its_corner() -> None:
    q, k, v = drawn(5, 1, 4), drawn(7, 1, 4, seed=1), drawn(7, 1, 4, seed=2)
    mask = drawn(3, 4, seed=3) > 0.5
    out, _, _ = CALL(q, k, v, 1, "TND", atten_mask=mask, actual_seq_qlen=[2, 5], actual_seq_kvlen=[3, 7])
    for qs, ks in ((slice(0, 2), slice(0, 3)), (slice(2, 5), slice(3, 7))):
        alone = (x.transpose(0, 1)[None] for x in (q[qs], k[ks], v[ks]))
        size = qs.stop - qs.start, ks.stop - ks.start
        close(out[qs].transpose(0, 1)[None], plain(*alone, masked=mask[: size[0], : size[1]]))


@pytest.mark.parametrize(
    ("q_ends", "k_ends"),
    [([3, 3, 7], [3, 3, 7]), ([3, 7, 0], [3, 7, 0]), ([3, 7, 7], [3, 7, 9]), ([3, 7], [3, 7])],
)
def test_empty_sequences_and_tokens_after_the_last_one(q_ends: list[int], k_ends: list[int]) -> None:
    q, k, v = drawn(9, 2, 4), drawn(9, 2, 4, seed=1), drawn(9, 2, 4, seed=2)
    out, _, _ = CALL(q, k, v, 2, "TND", actual_seq_qlen=q_ends, actual_seq_kvlen=torch.tensor(k_ends))
    for span in (slice(0, 3), slice(3, 7)):
        close(out[span].transpose(0, 1)[None], plain(*(x[span].transpose(0, 1)[None] for x in (q, k, v))))
    assert not out[7:].any()


def test_queries_without_keys_come_out_as_0() -> None:
    q, k = drawn(4, 1, 2), drawn(2, 1, 2, seed=1)
    out, _, _ = CALL(q, k, k, 1, "TND", actual_seq_qlen=[2, 4], actual_seq_kvlen=[2, 2])
    assert out[:2].all()
    assert not out[2:].any()


@pytest.mark.parametrize("first_rows", [1, 2, 3])
def test_a_sequence_cut_between_devices_gives_the_rows_of_the_whole(first_rows: int) -> None:
    """The documents' example: mode 3, the last sequence's queries cut; the upper part runs as mode 7, the lower as mode 3."""
    q, k, v = drawn(7, 1, 4), drawn(9, 1, 4, seed=1), drawn(9, 1, 4, seed=2)
    mask = compressed_mask(3)
    whole, _, _ = CALL(
        q, k, v, 1, "TND", atten_mask=mask, sparse_mode=3, actual_seq_qlen=[3, 7], actual_seq_kvlen=[3, 9]
    )
    cut = 3 + first_rows
    upper, _, _ = CALL(
        q[:cut], k, v, 1, "TND", atten_mask=mask, sparse_mode=7, pre_tockens=6, next_tockens=cut - 7,
        actual_seq_qlen=[3, cut], actual_seq_kvlen=[3, 9],
    )  # fmt: skip
    lower, _, _ = CALL(
        q[cut:], k[3:], v[3:], 1, "TND", atten_mask=mask, sparse_mode=3, actual_seq_qlen=[7 - cut], actual_seq_kvlen=[6]
    )
    close(torch.cat([upper, lower]), whole)


def test_a_sequence_cut_under_mode_2_runs_as_mode_8() -> None:
    """The documents' example: 5 queries on 4 keys, cut after the second; the lower part is a band with next_tockens 1."""
    q, k, v = drawn(5, 1, 4), drawn(4, 1, 4, seed=1), drawn(4, 1, 4, seed=2)
    mask = compressed_mask(2)
    whole, _, _ = CALL(q, k, v, 1, "TND", atten_mask=mask, sparse_mode=2, actual_seq_qlen=[5], actual_seq_kvlen=[4])
    lower, _, _ = CALL(
        q[2:], k, v, 1, "TND", atten_mask=mask, sparse_mode=8, pre_tockens=4, next_tockens=1,
        actual_seq_qlen=[3], actual_seq_kvlen=[4],
    )  # fmt: skip
    close(lower, whole[2:])


def test_position_codes_of_sequences() -> None:
    q, k, v = drawn(5, 2, 4), drawn(5, 2, 4, seed=1), drawn(5, 2, 4, seed=2)
    mask, ends = compressed_mask(2), [2, 5]
    codes = codes_of_distance(2, 3)
    flat = torch.cat([codes[:, :, :2, :2].flatten(), codes.flatten()])
    options: dict[str, Any] = {"atten_mask": mask, "sparse_mode": 2, "actual_seq_qlen": ends, "actual_seq_kvlen": ends}
    out, _, _ = CALL(q, k, v, 2, "TND", pse=flat, **options)
    for span in (slice(0, 2), slice(2, 5)):
        size = span.stop - span.start
        alone = (x[span].transpose(0, 1)[None] for x in (q, k, v))
        close(out[span].transpose(0, 1)[None], plain(*alone, masked=rule(size, size, 2), pse=codes[:, :, :size, :size]))
    close(CALL(q, k, v, 2, "TND", pse=codes, **options)[0], out)
    close(CALL(q, k, v, 2, "TND", pse=codes[:, :, -2:], **options)[0], out)
    close(CALL(q, k, v, 2, "TND", pse=codes.expand(2, -1, -1, -1), **options)[0], out)


def expanded(setting: Setting, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor | None:
    return setting.mask.piece(slice(0, q.shape[0]), slice(0, q.shape[1]), slice(0, q.shape[2]), k.shape[2], q.device)


MASKS = [
    Mask(),
    Mask(upper=3),
    Mask(upper=1, lower=-1),
    Mask(upper=3, prefix=(2, 6, 4)),
    Mask(given=drawn(3, 1, 5, 8) > 0.5),
    Mask(given=drawn(1, 4, 1, 8) > 0.5),
]


@pytest.mark.parametrize("size", [1, 9, 40, 81, 200, 10**6])
@pytest.mark.parametrize("mask", MASKS)
def test_pieces_change_nothing(size: int, mask: Mask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_core, "PIECE", size)
    q, k, v = (x.requires_grad_() for x in (drawn(3, 4, 5, 6), drawn(3, 2, 8, 6, seed=1), drawn(3, 2, 8, 3, seed=2)))
    pse = drawn(3, 4, 1, 8, seed=3).requires_grad_()
    keep = drawn(3, 1, 5, 8, seed=4) > -1
    setting = Setting(0.5, mask, keep, 0.75)
    out, _, _ = attention(q, k, v, pse, setting)
    expected = plain(
        q, k, v, 0.5, expanded(setting, q, k), pse.expand(3, 4, 5, 8), keep.expand(3, 4, 5, 8).double() / 0.75
    )
    close(out, expected)
    grad = drawn(*out.shape, seed=5)
    for a, b in zip(*(torch.autograd.grad(y, (q, k, v, pse), grad) for y in (out, expected)), strict=True):
        close(a, b)


Q8 = drawn(1, 2, 4, 8)
TND = (drawn(4, 2, 8), drawn(4, 2, 8), drawn(4, 2, 8), 2, "TND")
WRONG: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((Q8, Q8, Q8, 2, "NBSD"), {}, "input_layout is 'NBSD', expected one of BNSD"),
    ((Q8, Q8, Q8, 4, "BNSD"), {}, "head_num 4 does not fit query, key and value with 2, 2 and 2 heads"),
    ((Q8, drawn(1, 3, 4, 8), drawn(1, 3, 4, 8), 2, "BNSD"), {}, "with 2, 3 and 3 heads"),
    ((drawn(1, 4, 10), drawn(1, 4, 10), drawn(1, 4, 10), 3, "BSH"), {}, "does not part into 3 heads"),
    ((Q8, Q8, Q8, 2, "BNSD"), {"padding_mask": Q8}, "padding_mask"),
    ((Q8, Q8, Q8, 2, "BNSD"), {"actual_seq_qlen": [4], "actual_seq_kvlen": [4]}, "belong to the layout TND"),
    ((Q8, Q8, Q8, 2, "BNSD"), {"atten_mask": torch.ones(3, 4)}, r"\(3, 4\) in sparse_mode 0 does not fit scores of shape \(1, 2, 4, 4\)"),
    ((Q8, Q8, Q8, 2, "BNSD"), {"atten_mask": torch.ones(2048, 2048), "sparse_mode": 3}, "nor is the compressed mask"),
    ((Q8, Q8, Q8, 2, "BNSD"), {"atten_mask": compressed_mask(2), "sparse_mode": 7}, "sparse_mode is 7, expected 0 to 6"),
    ((Q8, Q8, Q8, 2, "BNSD"), {"atten_mask": compressed_mask(6), "sparse_mode": 6}, "a prefix for each of 1 batch elements, 0"),
    ((Q8, Q8, Q8, 2, "BNSD"), {"pse": drawn(1, 2, 3, 4)}, r"pse of shape \(1, 2, 3, 4\) fits neither 4 x 4"),
    (TND, {}, "needs actual_seq_qlen and actual_seq_kvlen"),
    (TND, {"actual_seq_qlen": [2, 4], "actual_seq_kvlen": [4]}, "of one length, 2 and 1 numbers"),
    (TND, {"actual_seq_qlen": [3, 2], "actual_seq_kvlen": [3, 4]}, "sequence 1 of TND ends at 2 and 4"),
    (TND, {"actual_seq_qlen": [3, 4], "actual_seq_kvlen": [3, 5]}, "nor pass the 4 and 4 tokens"),
    (TND, {"actual_seq_qlen": [4], "actual_seq_kvlen": [4], "sparse_mode": 5, "atten_mask": torch.ones(4, 4)}, "expected 0 to 4 or 6 to 8"),
    (TND, {"actual_seq_qlen": [4], "actual_seq_kvlen": [4], "sparse_mode": 7, "pse": drawn(32)}, "takes no pse"),
    (TND, {"actual_seq_qlen": [4], "actual_seq_kvlen": [4], "sparse_mode": 8, "atten_mask": torch.ones(4, 4)}, "needs the compressed mask"),
    (TND, {"actual_seq_qlen": [4], "actual_seq_kvlen": [4], "pse": drawn(31)}, "31 numbers, too few for sequence 0"),
    (TND, {"actual_seq_qlen": [3], "actual_seq_kvlen": [4], "pse": drawn(1, 2, 4, 4)}, "equal query and key length, 0 has 3 and 4"),
    (TND, {"actual_seq_qlen": [4], "actual_seq_kvlen": [4], "keep_prob": 0.5, "drop_mask": torch.ones(1)}, "drop_mask"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "kwargs", "text"), WRONG)
def test_what_cannot_be_followed_says_why(args: tuple[Any, ...], kwargs: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        CALL(*args, **kwargs)
    assert "\n" not in str(caught.value)


def test_the_compressed_masks_look_as_documented() -> None:
    triangle, prefix = compressed_mask(2), compressed_mask(6)
    assert triangle is not None
    assert prefix is not None
    assert triangle.shape == (2048, 2048)
    assert not triangle[7, 7]
    assert triangle[7, 8]
    assert prefix.shape == (3072, 2048)
    assert torch.equal(prefix[:2048], triangle)
    assert not prefix[2048:, :1024].any()
    assert prefix[2048:, 1024:].all()
    assert compressed_mask(0) is compressed_mask(5) is None
