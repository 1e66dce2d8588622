"""A training script for Keras, whatever runs it: the convolutional network of the MNIST example.

KERAS_BACKEND=jax python mnist_keras.py --epochs 3
trainlab watch mnist_keras.py --vary env.KERAS_BACKEND=torch,jax,tensorflow --seeds 3
"""

import argparse
import gzip
from importlib.resources import files

import keras
import numpy as np
from keras import layers

FOLDER = files("trainlab") / "data" / "bundled" / "mnist"
"""A part of MNIST; `keras.datasets.mnist.load_data()` fetches all of it."""


def load(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images, normalised, and their labels."""
    with gzip.open(str(FOLDER / f"{part}-images-idx3-ubyte.gz")) as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28, 1)
    with gzip.open(str(FOLDER / f"{part}-labels-idx1-ubyte.gz")) as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return (images.astype("float32") / 255 - 0.1307) / 0.3081, labels.astype("int32")


def main() -> None:
    """Trains, and prints the accuracy on the test set."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--samples", type=int, help="how many to train on; not given: all")
    asked = parser.parse_args()
    x_train, y_train = (part[: asked.samples] for part in load("train"))
    x_test, y_test = load("t10k")
    model = keras.Sequential(
        [
            keras.Input(shape=(28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adadelta(asked.lr),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    decay = keras.callbacks.LearningRateScheduler(lambda epoch: asked.lr * 0.7**epoch)
    model.fit(
        x_train,
        y_train,
        batch_size=asked.batch_size,
        epochs=asked.epochs,
        callbacks=[decay],
        verbose=2,
    )
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=1000, verbose=0)
    print(f"test loss {loss:.4f}, accuracy {100 * accuracy:.2f}%")


if __name__ == "__main__":
    main()
