"""Settings with which also those parts of a method have work that wait for a sure network, or for a tenth round."""

LIVELY = {
    "fixmatch": ["method.confidence=0.3"],
    "uda": ["method.confidence=0.3"],
    "sage": ["method.confidence=0.3"],
    "fedmatch": ["method.confidence=0.3", "method.helper_rounds=1", "aggregation.lr=0.01"],
}
"""by method; the others need none"""
