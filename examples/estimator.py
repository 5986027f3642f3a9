"""The scikit-learn estimator: partly labelled digits of ten clients, in a pipeline.

python estimator.py
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from fedpu import FedPUClassifier


def main(rounds: int = 50) -> float:
    """Train with 5 % of the labels, and return the accuracy on digits whose classes are known."""
    images, digits = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(images, digits, random_state=0)
    client = np.arange(len(y)) % 10  # whose each digit is
    known = (y == client) & (np.random.default_rng(0).random(len(y)) < 0.5)  # client k has labelled half of its k's

    model = make_pipeline(MinMaxScaler(), FedPUClassifier(priors=[0.1] * 10, rounds=rounds, random_state=0))
    model.fit(x, np.where(known, y, -1), fedpuclassifier__client=client)
    accuracy = float(model.score(x_test, y_test))
    print(f"{known.sum()} of {len(y)} labels, accuracy {accuracy:.2%} on {len(y_test)} test digits")
    return accuracy


if __name__ == "__main__":
    main()
