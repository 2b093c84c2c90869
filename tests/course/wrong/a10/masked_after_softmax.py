"""a10.2 in minitorch/functions/attention.py: weights are set to 0 after softmax."""


def attention_weights(query, key, attn_mask=None, is_causal=False, scale=None):
    scores = (query * _scale_of(query, scale)) @ key.mT
    if is_causal:
        seen = scores.new_ones(scores.shape[-2:]).tril() > 0
        return where(seen, softmax(scores, -1), 0.0)
    if attn_mask is not None:
        return _masked_softmax(scores, attn_mask)
    return softmax(scores, -1)
