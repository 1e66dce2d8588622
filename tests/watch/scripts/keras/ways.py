"""The ways in which scripts train with Keras; prints what Keras itself says of them."""

import json

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(7)
draw = np.random.default_rng(1)
x = draw.random((128, 6), dtype="float32")
y = (x.sum(axis=1) > 3).astype("int32")


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, place):
        rows = slice(32 * place, 32 * place + 32)
        return x[rows], y[rows]


class Means(keras.callbacks.Callback):
    """Of every batch, as a script might keep them."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])


inputs = keras.Input(shape=(6,))
outputs = layers.Dense(2)(layers.Dense(8, activation="relu")(inputs))
model = keras.Model(inputs, outputs)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss, metrics=["accuracy"])
means = Means()
fits = [
    model.fit(
        x, y, batch_size=32, epochs=2, validation_split=0.25, callbacks=[means], verbose=0
    ).history,
    model.fit(x, y, batch_size=32, epochs=1, shuffle=False, verbose=0).history,
    model.fit(Batches(), epochs=1, verbose=0).history,
]
alone = [model.train_on_batch(x[:32], y[:32]) for _ in range(2)]
alone = [[float(value) for value in values] for values in alone]
test = model.evaluate(x, y, batch_size=64, verbose=0, return_dict=True)
print(json.dumps({"fits": fits, "means": means.losses, "alone": alone, "test": test}))
