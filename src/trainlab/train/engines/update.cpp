// The updates of torch's optimizers that torch has no fused code for on a CPU, one pass over memory each, equal to
// torch's to rounding. Called through ctypes by `tuned.py`, which lays out the arguments.

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

enum Kind { ADADELTA, RMSPROP };

// One parameter tensor. The order of the fields is that of `tuned.py`, of the states that in which torch keeps
// them. All tensors are contiguous; a state that the optimizer's options leave out is null.
struct Tensor {
    float* parameter;
    const float* gradient;
    float* states[3];
    float* step;
    int64_t size;
};

// The options of a parameter group; `first` is rho or alpha.
struct Options {
    double lr, first, eps, weight_decay, momentum;
    int64_t centered;
};

// Which elements of a tensor one thread updates.
struct Range {
    int64_t begin, end;
};

// torch's `lerp`: two forms, each exact at its own end.
inline float between(float from, float to, float weight) {
    return weight < 0.5f ? from + weight * (to - from) : to - (to - from) * (1.0f - weight);
}

// States: square_avg, acc_delta.
template <bool DECAYS>
void adadelta(const Tensor& tensor, const Options& options, Range range) {
    float* __restrict p = tensor.parameter;
    const float* __restrict gradient = tensor.gradient;
    float* __restrict square_avg = tensor.states[0];
    float* __restrict acc_delta = tensor.states[1];
    const float lr = options.lr, rho = options.first, rest = 1 - options.first, eps = options.eps;
    const float decay = options.weight_decay;
    for (int64_t i = range.begin; i < range.end; ++i) {
        const float g = DECAYS ? gradient[i] + decay * p[i] : gradient[i];
        const float square = square_avg[i] * rho + rest * g * g;
        // torch divides two roots; the root of the quotient takes one slow operation less.
        const float delta = std::sqrt((acc_delta[i] + eps) / (square + eps)) * g;
        square_avg[i] = square;
        acc_delta[i] = acc_delta[i] * rho + rest * delta * delta;
        p[i] -= lr * delta;
    }
}

// States: square_avg, momentum_buffer where there is momentum, grad_avg where centered.
template <bool DECAYS, bool CENTERED, bool MOMENTUM>
void rmsprop(const Tensor& tensor, const Options& options, Range range) {
    float* __restrict p = tensor.parameter;
    const float* __restrict gradient = tensor.gradient;
    float* __restrict square_avg = tensor.states[0];
    float* __restrict buffer = tensor.states[1];
    float* __restrict grad_avg = tensor.states[2];
    const float lr = options.lr, alpha = options.first, rest = 1 - options.first;
    const float momentum = options.momentum, eps = options.eps, decay = options.weight_decay;
    for (int64_t i = range.begin; i < range.end; ++i) {
        const float g = DECAYS ? gradient[i] + decay * p[i] : gradient[i];
        float square = square_avg[i] * alpha + rest * g * g;
        square_avg[i] = square;
        if (CENTERED) {
            const float mean = between(grad_avg[i], g, rest);
            grad_avg[i] = mean;
            square -= mean * mean;
        }
        const float root = std::sqrt(square) + eps;
        if (MOMENTUM) {
            buffer[i] = buffer[i] * momentum + g / root;
            p[i] -= lr * buffer[i];
        } else {
            p[i] -= lr * g / root;
        }
    }
}

using Update = void (*)(const Tensor&, const Options&, Range);

template <bool DECAYS>
Update update_of(Kind kind, const Options& options) {
    if (kind == ADADELTA) return adadelta<DECAYS>;
    const bool momentum = options.momentum > 0;
    if (options.centered) return momentum ? rmsprop<DECAYS, true, true> : rmsprop<DECAYS, true, false>;
    return momentum ? rmsprop<DECAYS, false, true> : rmsprop<DECAYS, false, false>;
}

// Fewer elements than this are not worth another thread, which may have to be woken.
constexpr int64_t WORTH_A_THREAD = 1 << 17;
// Of two ranges, neither ends within a cache line of the other.
constexpr int64_t ALIGNED = 64;

// torch's own threads, through the interface of its OpenMP; null where torch has none that we know.
struct Pool {
    void (*parallel)(void (*work)(void*), void* data, unsigned num_threads, unsigned flags);
    int (*thread)();
    int (*num_threads)();
} pool{};

// Calls `work(part, parts)` for every part, each in a thread. torch's threads wait for work awhile: one of
// them begins within some 10 microseconds, where one that is started has to take a core away from them.
template <typename Work>
void in_parts(int64_t parts, const Work& work) {
    if (parts <= 1) {
        work(0, 1);
    } else if (pool.parallel == nullptr) {
        std::vector<std::thread> others;
        for (int64_t part = 1; part < parts; ++part) others.emplace_back(work, part, parts);
        work(0, parts);
        for (std::thread& other : others) other.join();
    } else {
        struct Shared {
            const Work& work;
            fenv_t rounding;
        } shared{work, {}};
        fegetenv(&shared.rounding);
        const auto run = [](void* data) {
            const Shared& shared = *static_cast<const Shared*>(data);
            fenv_t before;
            fegetenv(&before);
            fesetenv(&shared.rounding);  // whether denormal numbers are flushed, as where this was called
            shared.work(pool.thread(), pool.num_threads());  // OpenMP may give fewer than it is asked for
            fesetenv(&before);
        };
        pool.parallel(run, &shared, static_cast<unsigned>(parts), 0);
    }
}

// Updates what is one part's of all elements, counted through from the first tensor to the last.
void update_part(Update update, const Tensor* tensors, int64_t count, const Options& options,
                 int64_t size, int64_t part, int64_t parts) {
    const int64_t each = (size / parts + ALIGNED - 1) / ALIGNED * ALIGNED;
    const int64_t begin = part * each;
    const int64_t end = part == parts - 1 ? size : begin + each;
    int64_t first = 0;
    for (int64_t i = 0; i < count && first < end; first += tensors[i++].size) {
        const Range range{std::max<int64_t>(begin - first, 0),
                          std::min<int64_t>(end - first, tensors[i].size)};
        if (range.begin < range.end) update(tensors[i], options, range);
    }
}

}  // namespace

// From now on torch's threads are used: three functions of its OpenMP, `GOMP_parallel`,
// `omp_get_thread_num` and `omp_get_num_threads`.
extern "C" void trainlab_use_threads(void* parallel, void* thread, void* num_threads) {
    pool.parallel = reinterpret_cast<decltype(pool.parallel)>(parallel);
    pool.thread = reinterpret_cast<decltype(pool.thread)>(thread);
    pool.num_threads = reinterpret_cast<decltype(pool.num_threads)>(num_threads);
}

// Updates every tensor of a parameter group.
extern "C" void trainlab_update(int kind, const Tensor* tensors, int64_t count, const Options* options,
                                int64_t num_threads) {
    const Update update = options->weight_decay != 0 ? update_of<true>(static_cast<Kind>(kind), *options)
                                                     : update_of<false>(static_cast<Kind>(kind), *options);
    int64_t size = 0;
    for (int64_t i = 0; i < count; ++i) {
        *tensors[i].step += 1;
        size += tensors[i].size;
    }
    in_parts(size < WORTH_A_THREAD ? 1 : num_threads, [&](int64_t part, int64_t parts) {
        update_part(update, tensors, count, *options, size, part, parts);
    });
}
