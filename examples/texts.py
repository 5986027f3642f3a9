"""Texts as token ids: messages of two kinds, some of which their readers have marked.

python texts.py
"""

import numpy as np

import fedpu

WORDS = {
    "ham": ["lunch", "meeting", "notes", "train", "home", "garden"],
    "spam": ["win", "prize", "cheap", "pills", "click", "offer"],
}
COMMON = ["the", "a", "and", "we", "you", "it", "now", "today", "please", "soon", "with", "for"]
# Token id 0 is padding.
VOCABULARY = {word: number for number, word in enumerate([*COMMON, *WORDS["ham"], *WORDS["spam"]], start=1)}


def messages(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Return messages of eight words, two of which tell what they are, and their kinds."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(["ham", "spam"], count).tolist()
    return [" ".join([*rng.choice(COMMON, 6), *rng.choice(WORDS[kind], 2)]) for kind in kinds], kinds


def ids(texts: list[str]) -> np.ndarray:
    """Return one row of token ids per text, as any tokenizer gives them."""
    return np.array([[VOCABULARY[word] for word in text.split()] for text in texts])


def main(rounds: int = 30) -> float:
    """Train on marked and unmarked messages of two readers, and return the accuracy on others."""
    texts, kinds = messages(600, seed=0)
    reader = np.arange(600) % 2  # the first marks ham alone, the second spam alone
    marked = (np.array(kinds) == np.array(["ham", "spam"])[reader]) & (np.arange(600) % 5 == 0)

    data = fedpu.read(ids(texts), np.where(marked, kinds, None), client=reader, tokens=True)
    config = fedpu.config_for(data, f"aggregation.rounds={rounds}", "aggregation.lr=0.3")
    result = fedpu.run(config, data=data)

    new, truth = messages(200, seed=1)
    accuracy = float((result.predict(ids(new)) == np.array(truth)).mean())
    print(f"{marked.sum()} of 600 messages marked, accuracy {accuracy:.1%} on 200 new ones")
    return accuracy


if __name__ == "__main__":
    main()
