"""Trains a small neural network on scikit-learn's handwritten digits."""

import argparse
import json
import os
from pathlib import Path

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from tqdm import tqdm

from j2c_lab import log_metrics

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--options", type=json.loads, default={}, help="JSON for MLPClassifier")
options = parser.parse_args()

# Where results go: j2c brings them back. Without j2c it is the current directory.
outputs = Path(os.environ.get("J2C_OUTPUT_DIR", "."))

images, labels = load_digits(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(
    images / 16, labels, test_size=0.25, random_state=0, stratify=labels
)
model = MLPClassifier(learning_rate_init=options.lr, random_state=0, **options.options)
print(f"{len(train_x)} images to learn from, {len(test_x)} to test with; lr {options.lr}")

bar = tqdm(range(1, options.epochs + 1), desc="epoch", ncols=72)
for epoch in bar:
    model.partial_fit(train_x, train_y, classes=np.unique(labels))
    accuracy = model.score(test_x, test_y)
    log_metrics(step=epoch, loss=model.loss_, accuracy=accuracy)
    bar.set_postfix(accuracy=f"{accuracy:.3f}")

joblib.dump(model, outputs / "model.joblib")
(outputs / "metrics.json").write_text(
    json.dumps({"accuracy": accuracy, "loss": model.loss_, "lr": options.lr})
)
print(f"accuracy {accuracy:.3f}")
