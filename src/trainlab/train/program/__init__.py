"""The training step of one or many trials as a program: a function without arguments that works on tensors
which stay in place, so that a CUDA graph can replay it."""
