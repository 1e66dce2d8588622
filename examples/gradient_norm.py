"""An instrument of one's own: the norm of the gradient, once per logged point."""

import trainlab


class GradientNorm(trainlab.Instrument):
    """Prints the norm over all parameters; it reads the device only where the loop does anyway."""

    def trial_begins(self, view):
        self.model = view.model

    def point_logged(self, point):
        squares = sum(p.grad.square().sum() for p in self.model.parameters())
        print(f"step {point.step}: gradient norm {float(squares) ** 0.5:.3f}")


if __name__ == "__main__":
    trainlab.run("fashion-mlp", epochs=1, data="bundled", instruments=[GradientNorm()])
