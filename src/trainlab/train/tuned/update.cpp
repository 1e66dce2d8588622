// The updates of torch's optimizers, one pass over memory each, equal to torch's to rounding.
// Called through ctypes by `update.py`, which lays out the arguments.

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

enum Kind { ADADELTA, SGD, ADAM, ADAMW, RMSPROP, ADAGRAD };

// One parameter tensor. The order of the fields is that of `update.py`. All tensors are contiguous; a
// state that the optimizer's options leave out is null.
struct Tensor {
    void* parameter;
    const void* gradient;
    void* states[3];
    float* step;
    int64_t size;
};

// The options of a parameter group; `first` and `second` are rho, alpha, momentum, … as each kind says.
struct Options {
    double lr, first, second, eps, weight_decay, extra;
    int64_t flag;
};

// Which elements of a tensor one thread updates.
struct Range {
    int64_t begin, end;
};

// torch's `lerp`: two forms, each exact at its own end.
template <typename T>
inline T between(T from, T to, T weight) {
    return weight < T(0.5) ? from + weight * (to - from) : to - (to - from) * (T(1) - weight);
}

// first: rho. States: square_avg, acc_delta.
template <typename T, bool DECAYS>
void adadelta(const Tensor& tensor, const Options& options, Range range) {
    T* __restrict p = static_cast<T*>(tensor.parameter);
    const T* __restrict gradient = static_cast<const T*>(tensor.gradient);
    T* __restrict square_avg = static_cast<T*>(tensor.states[0]);
    T* __restrict acc_delta = static_cast<T*>(tensor.states[1]);
    const T lr = options.lr, rho = options.first, rest = 1 - options.first, eps = options.eps;
    const T decay = options.weight_decay;
    for (int64_t i = range.begin; i < range.end; ++i) {
        const T g = DECAYS ? gradient[i] + decay * p[i] : gradient[i];
        const T square = square_avg[i] * rho + rest * g * g;
        // torch divides two roots; the root of the quotient takes one slow operation less.
        const T delta = std::sqrt((acc_delta[i] + eps) / (square + eps)) * g;
        square_avg[i] = square;
        acc_delta[i] = acc_delta[i] * rho + rest * delta * delta;
        p[i] -= lr * delta;
    }
}

// first: momentum; extra: dampening; flag: nesterov. States: momentum_buffer, null without momentum.
template <typename T, bool DECAYS>
void sgd(const Tensor& tensor, const Options& options, Range range) {
    T* __restrict p = static_cast<T*>(tensor.parameter);
    const T* __restrict gradient = static_cast<const T*>(tensor.gradient);
    T* __restrict buffer = static_cast<T*>(tensor.states[0]);
    const T lr = options.lr, momentum = options.first, rest = 1 - options.extra;
    const T decay = options.weight_decay;
    if (buffer == nullptr) {
        for (int64_t i = range.begin; i < range.end; ++i) {
            p[i] -= lr * (DECAYS ? gradient[i] + decay * p[i] : gradient[i]);
        }
    } else if (options.flag) {
        for (int64_t i = range.begin; i < range.end; ++i) {
            const T g = DECAYS ? gradient[i] + decay * p[i] : gradient[i];
            buffer[i] = buffer[i] * momentum + rest * g;
            p[i] -= lr * (g + momentum * buffer[i]);
        }
    } else {
        for (int64_t i = range.begin; i < range.end; ++i) {
            const T g = DECAYS ? gradient[i] + decay * p[i] : gradient[i];
            buffer[i] = buffer[i] * momentum + rest * g;
            p[i] -= lr * buffer[i];
        }
    }
}

// first, second: betas; flag: amsgrad. States: exp_avg, exp_avg_sq, max_exp_avg_sq with amsgrad.
template <typename T, bool L2, bool DECOUPLED, bool AMSGRAD>
void adam(const Tensor& tensor, const Options& options, Range range) {
    T* __restrict p = static_cast<T*>(tensor.parameter);
    const T* __restrict gradient = static_cast<const T*>(tensor.gradient);
    T* __restrict exp_avg = static_cast<T*>(tensor.states[0]);
    T* __restrict exp_avg_sq = static_cast<T*>(tensor.states[1]);
    T* __restrict largest = static_cast<T*>(tensor.states[2]);
    const double step = *tensor.step;
    const T size = options.lr / (1 - std::pow(options.first, step));
    const T correction = 1 / std::sqrt(1 - std::pow(options.second, step));
    const T weight = 1 - options.first, beta2 = options.second, rest = 1 - options.second;
    const T eps = options.eps, decay = options.weight_decay;
    const T kept = 1 - options.lr * options.weight_decay;
    for (int64_t i = range.begin; i < range.end; ++i) {
        const T old = DECOUPLED ? p[i] * kept : p[i];
        const T g = L2 ? gradient[i] + decay * old : gradient[i];
        const T mean = between(exp_avg[i], g, weight);
        T square = exp_avg_sq[i] * beta2 + rest * g * g;
        exp_avg[i] = mean;
        exp_avg_sq[i] = square;
        if (AMSGRAD) {
            // As torch's maximum: NaN where either is.
            square = square > largest[i] || square != square ? square : largest[i];
            largest[i] = square;
        }
        p[i] = old - size * mean / (std::sqrt(square) * correction + eps);
    }
}

// first: alpha; second: momentum; flag: centered. States: square_avg, grad_avg, momentum_buffer.
template <typename T, bool DECAYS, bool CENTERED, bool MOMENTUM>
void rmsprop(const Tensor& tensor, const Options& options, Range range) {
    T* __restrict p = static_cast<T*>(tensor.parameter);
    const T* __restrict gradient = static_cast<const T*>(tensor.gradient);
    T* __restrict square_avg = static_cast<T*>(tensor.states[0]);
    T* __restrict grad_avg = static_cast<T*>(tensor.states[1]);
    T* __restrict buffer = static_cast<T*>(tensor.states[2]);
    const T lr = options.lr, alpha = options.first, rest = 1 - options.first;
    const T momentum = options.second, eps = options.eps, decay = options.weight_decay;
    for (int64_t i = range.begin; i < range.end; ++i) {
        const T g = DECAYS ? gradient[i] + decay * p[i] : gradient[i];
        T square = square_avg[i] * alpha + rest * g * g;
        square_avg[i] = square;
        if (CENTERED) {
            const T mean = between(grad_avg[i], g, rest);
            grad_avg[i] = mean;
            square -= mean * mean;
        }
        const T root = std::sqrt(square) + eps;
        if (MOMENTUM) {
            buffer[i] = buffer[i] * momentum + g / root;
            p[i] -= lr * buffer[i];
        } else {
            p[i] -= lr * g / root;
        }
    }
}

// first: lr_decay. States: sum.
template <typename T, bool DECAYS>
void adagrad(const Tensor& tensor, const Options& options, Range range) {
    T* __restrict p = static_cast<T*>(tensor.parameter);
    const T* __restrict gradient = static_cast<const T*>(tensor.gradient);
    T* __restrict sum = static_cast<T*>(tensor.states[0]);
    const T lr = options.lr / (1 + (*tensor.step - 1) * options.first);
    const T eps = options.eps, decay = options.weight_decay;
    for (int64_t i = range.begin; i < range.end; ++i) {
        const T g = DECAYS ? gradient[i] + decay * p[i] : gradient[i];
        sum[i] += g * g;
        p[i] -= lr * g / (std::sqrt(sum[i]) + eps);
    }
}

using Update = void (*)(const Tensor&, const Options&, Range);

template <typename T, bool L2, bool DECOUPLED>
Update adam_with(bool amsgrad) {
    return amsgrad ? adam<T, L2, DECOUPLED, true> : adam<T, L2, DECOUPLED, false>;
}

template <typename T, bool DECAYS>
Update rmsprop_with(bool centered, bool momentum) {
    if (centered) {
        return momentum ? rmsprop<T, DECAYS, true, true> : rmsprop<T, DECAYS, true, false>;
    }
    return momentum ? rmsprop<T, DECAYS, false, true> : rmsprop<T, DECAYS, false, false>;
}

template <typename T>
Update update_of(Kind kind, const Options& options) {
    const bool decays = options.weight_decay != 0;
    switch (kind) {
        case ADADELTA:
            return decays ? adadelta<T, true> : adadelta<T, false>;
        case SGD:
            return decays ? sgd<T, true> : sgd<T, false>;
        case ADAM:
            return decays ? adam_with<T, true, false>(options.flag)
                          : adam_with<T, false, false>(options.flag);
        case ADAMW:
            return decays ? adam_with<T, false, true>(options.flag)
                          : adam_with<T, false, false>(options.flag);
        case RMSPROP:
            return decays ? rmsprop_with<T, true>(options.flag, options.second > 0)
                          : rmsprop_with<T, false>(options.flag, options.second > 0);
        case ADAGRAD:
            return decays ? adagrad<T, true> : adagrad<T, false>;
    }
    return nullptr;
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

// Updates every tensor of a parameter group; returns 0, or 1 for a kind that there is not.
extern "C" int trainlab_update(int kind, int is_double, const Tensor* tensors, int64_t count,
                               const Options* options, int64_t num_threads) {
    const Update update = is_double ? update_of<double>(static_cast<Kind>(kind), *options)
                                    : update_of<float>(static_cast<Kind>(kind), *options);
    if (update == nullptr) return 1;
    int64_t size = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (tensors[i].step != nullptr) *tensors[i].step += 1;
        size += tensors[i].size;
    }
    in_parts(size < WORTH_A_THREAD ? 1 : num_threads, [&](int64_t part, int64_t parts) {
        update_part(update, tensors, count, *options, size, part, parts);
    });
    return 0;
}

// Updates tensors that have options each, as trials have that are trained together: many to a thread, or,
// where there are fewer than threads, each shared by all. Returns as above.
extern "C" int trainlab_update_each(int kind, int is_double, const Tensor* tensors, int64_t count,
                                    const Options* options, int64_t num_threads) {
    if (count < num_threads) {
        for (int64_t i = 0; i < count; ++i) {
            if (trainlab_update(kind, is_double, tensors + i, 1, options + i, num_threads)) return 1;
        }
        return 0;
    }
    int64_t size = 0;
    for (int64_t i = 0; i < count; ++i) size += tensors[i].size;
    std::atomic<int> unknown{0};
    in_parts(size < WORTH_A_THREAD ? 1 : num_threads, [&](int64_t part, int64_t parts) {
        for (int64_t i = part * count / parts; i < (part + 1) * count / parts; ++i) {
            unknown |= trainlab_update(kind, is_double, tensors + i, 1, options + i, 1);
        }
    });
    return unknown;
}
