// The updates of torch.optim as one pass over the numbers of many trials, one row each.
//
// A block works on one row: blockIdx.y is the trial, whose settings are the row of `hypers` of that number,
// in the order in which lane_updates.py names them. Corrections that depend on the number of
// steps are computed once per block, in double.

#define ROW(T, pointer) (pointer + (long long)blockIdx.y * n)
#define FOR_EACH for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
#define KERNEL(name)                                                                                     \
    extern "C" __global__ void name(float* parameters, const float* gradients, float* state0,            \
                                    float* state1, float* state2, const double* hypers, int num_hypers,  \
                                    const double* rates, const double* steps, int n, int flags)
#define BEGIN                                                                                            \
    const double* hyper = hypers + blockIdx.y * num_hypers;                                              \
    const double rate = rates[blockIdx.y], step = steps[blockIdx.y];                                     \
    const float decay = (float)hyper[0];                                                                 \
    float* p = ROW(float, parameters);                                                                   \
    const float* g = ROW(float, gradients);

#define AMSGRAD 1
#define NESTEROV 2
#define CENTERED 4
#define MOMENTUM 8
#define DECOUPLED 16

KERNEL(sgd) {
    BEGIN
    const float momentum = (float)hyper[1], share = (float)(step == 1.0 ? 1.0 : 1.0 - hyper[2]);
    const float minus_rate = (float)-rate;
    float* buffer = ROW(float, state0);
    FOR_EACH {
        float gradient = g[i] + p[i] * decay;
        if (flags & MOMENTUM) {
            const float kept = buffer[i] * momentum + gradient * share;
            buffer[i] = kept;
            gradient = (flags & NESTEROV) ? gradient + kept * momentum : kept;
        }
        p[i] += gradient * minus_rate;
    }
}

KERNEL(adam) {
    BEGIN
    __shared__ float size, root;
    if (threadIdx.x == 0) {
        size = (float)(-rate / (1.0 - pow(hyper[1], step)));
        root = (float)(1.0 / sqrt(1.0 - pow(hyper[2], step)));
    }
    __syncthreads();
    const float rest1 = (float)(1.0 - hyper[1]), beta2 = (float)hyper[2], rest2 = (float)(1.0 - hyper[2]);
    const float eps = (float)hyper[3], shrink = (float)(1.0 - rate * hyper[0]);
    float *mean = ROW(float, state0), *square = ROW(float, state1), *largest = ROW(float, state2);
    FOR_EACH {
        float gradient = g[i], value = p[i];
        if (flags & DECOUPLED)
            value *= shrink;
        else
            gradient += value * decay;
        const float m = mean[i] + (gradient - mean[i]) * rest1;
        float v = square[i] * beta2 + gradient * rest2 * gradient;
        mean[i] = m;
        square[i] = v;
        if (flags & AMSGRAD) {
            // As torch.maximum: not a number wins.
            v = (v != v || v > largest[i]) ? v : largest[i];
            largest[i] = v;
        }
        p[i] = value + m / (sqrtf(v) * root + eps) * size;
    }
}

KERNEL(adadelta) {
    BEGIN
    const float rho = (float)hyper[1], rest = (float)(1.0 - hyper[1]), eps = (float)hyper[2];
    const float minus_rate = (float)-rate;
    float *square = ROW(float, state0), *delta = ROW(float, state1);
    FOR_EACH {
        const float gradient = g[i] + p[i] * decay;
        const float s = square[i] * rho + gradient * rest * gradient, d = delta[i];
        const float change = sqrtf((d + eps) / (s + eps)) * gradient;
        square[i] = s;
        delta[i] = d * rho + change * rest * change;
        p[i] += change * minus_rate;
    }
}

KERNEL(rmsprop) {
    BEGIN
    const float alpha = (float)hyper[1], rest = (float)(1.0 - hyper[1]), eps = (float)hyper[2];
    const float momentum = (float)hyper[3], minus_rate = (float)-rate;
    float *square = ROW(float, state0), *mean = ROW(float, state1), *buffer = ROW(float, state2);
    FOR_EACH {
        const float gradient = g[i] + p[i] * decay;
        const float s = square[i] * alpha + gradient * rest * gradient;
        square[i] = s;
        float inside = s;
        if (flags & CENTERED) {
            const float m = mean[i] + (gradient - mean[i]) * rest;
            mean[i] = m;
            inside = s - m * m;
        }
        float change = gradient / (sqrtf(inside) + eps);
        if (flags & MOMENTUM) {
            change += buffer[i] * momentum;
            buffer[i] = change;
        }
        p[i] += change * minus_rate;
    }
}

KERNEL(adagrad) {
    BEGIN
    const float eps = (float)hyper[2], minus_rate = (float)(-rate / (1.0 + (step - 1.0) * hyper[1]));
    float* total = ROW(float, state0);
    FOR_EACH {
        const float gradient = g[i] + p[i] * decay;
        const float s = total[i] + gradient * gradient;
        total[i] = s;
        p[i] += gradient / (sqrtf(s) + eps) * minus_rate;
    }
}
