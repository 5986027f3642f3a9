// GroupNorm and ReLU in one pass, forward and backward, in PyTorch's channels-last format.
//
// Tensors are (examples, pixels, channels), the channels innermost: a loop over channels is one over vectors. An example
// is small enough to stay in the cache while it is read several times. The order of every sum follows from the shapes
// alone.

#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace {

struct Shape {
    int64_t examples, pixels, channels, groups;
    double eps;

    int64_t width() const { return channels / groups; }  // channels of a group
    double count() const { return static_cast<double>(pixels * width()); }
};

struct Rows {  // vectors of one number a channel
    float *data;
    int64_t channels;
    Rows(int64_t count, int64_t channels) : channels(channels) {
        data = static_cast<float *>(std::calloc(count * channels, sizeof(float)));
    }
    ~Rows() { std::free(data); }
    Rows(const Rows &) = delete;
    Rows &operator=(const Rows &) = delete;
    float *operator[](int64_t row) const { return data + row * channels; }
};

void clear(float *__restrict values, int64_t count) {
    for (int64_t c = 0; c < count; c++) values[c] = 0;
}

// Four pixels at a time: the sums are read and written a fourth as often.
void sums(const float *__restrict x, float *__restrict sum, const Shape &s) {
    int64_t channels = s.channels, pixel = 0;
    clear(sum, channels);
    for (; pixel + 4 <= s.pixels; pixel += 4, x += 4 * channels)
        for (int64_t c = 0; c < channels; c++)
            sum[c] += (x[c] + x[channels + c]) + (x[2 * channels + c] + x[3 * channels + c]);
    for (; pixel < s.pixels; pixel++, x += channels)
        for (int64_t c = 0; c < channels; c++) sum[c] += x[c];
}

void squares(const float *__restrict x, const float *__restrict mean, float *__restrict sum, const Shape &s) {
    int64_t channels = s.channels, pixel = 0;
    clear(sum, channels);
    for (; pixel + 2 <= s.pixels; pixel += 2, x += 2 * channels)
        for (int64_t c = 0; c < channels; c++) {
            float a = x[c] - mean[c], b = x[channels + c] - mean[c];
            sum[c] += a * a + b * b;
        }
    for (; pixel < s.pixels; pixel++, x += channels)
        for (int64_t c = 0; c < channels; c++) sum[c] += (x[c] - mean[c]) * (x[c] - mean[c]);
}

double of_group(const float *sum, int64_t group, const Shape &s) {
    double all = 0;
    for (int64_t c = group * s.width(); c < (group + 1) * s.width(); c++) all += sum[c];
    return all;
}

}  // namespace

extern "C" {

// y = relu((x − mean) · scale · weight + bias); mean and scale (1 / deviation) are kept, one a group and example.
int fedpu_norm_forward(const float *x, const float *weight, const float *bias, float *y, float *mean, float *scale,
                       const Shape *shape) {
    const Shape &s = *shape;
    Rows rows(4, s.channels);
    if (!rows.data) return 1;
    float *sum = rows[0], *middle = rows[1], *__restrict slope = rows[2], *__restrict shift = rows[3];
    for (int64_t n = 0; n < s.examples; n++) {
        const float *__restrict in = x + n * s.pixels * s.channels;
        float *__restrict out = y + n * s.pixels * s.channels;
        float *means = mean + n * s.groups, *scales = scale + n * s.groups;
        sums(in, sum, s);
        for (int64_t g = 0; g < s.groups; g++) {
            means[g] = static_cast<float>(of_group(sum, g, s) / s.count());
            for (int64_t c = g * s.width(); c < (g + 1) * s.width(); c++) middle[c] = means[g];
        }
        squares(in, middle, sum, s);
        for (int64_t g = 0; g < s.groups; g++) {
            scales[g] = static_cast<float>(1 / std::sqrt(of_group(sum, g, s) / s.count() + s.eps));
            for (int64_t c = g * s.width(); c < (g + 1) * s.width(); c++) {
                slope[c] = weight[c] * scales[g];
                shift[c] = bias[c] - means[g] * slope[c];
            }
        }
        for (int64_t pixel = 0; pixel < s.pixels; pixel++, in += s.channels, out += s.channels)
            for (int64_t c = 0; c < s.channels; c++) {
                float value = in[c] * slope[c] + shift[c];
                out[c] = value < 0 ? 0 : value;  // what is no number stays none
            }
    }
    return 0;
}

// With z = ∂y where y > 0, x̂ = (x − mean) · scale and means over a group:
// ∂x = scale · (weight z − mean(weight z) − x̂ mean(weight z x̂)), written to the place of ∂y;
// ∂weight = Σ z x̂, ∂bias = Σ z.
int fedpu_norm_backward(float *gradient, const float *x, const float *y, const float *weight, const float *mean,
                        const float *scale, float *of_weight, float *of_bias, const Shape *shape) {
    const Shape &s = *shape;
    Rows rows(6, s.channels);
    if (!rows.data) return 1;
    float *__restrict middle = rows[0], *__restrict plain = rows[1], *__restrict along = rows[2];
    float *__restrict slope = rows[3], *__restrict tilt = rows[4], *__restrict shift = rows[5];
    clear(of_weight, s.channels);
    clear(of_bias, s.channels);
    for (int64_t n = 0; n < s.examples; n++) {
        int64_t start = n * s.pixels * s.channels;
        const float *means = mean + n * s.groups, *scales = scale + n * s.groups;
        for (int64_t c = 0; c < s.channels; c++) middle[c] = means[c / s.width()];
        clear(plain, s.channels);
        clear(along, s.channels);
        for (int64_t pixel = 0; pixel < s.pixels; pixel++) {
            const float *__restrict in = x + start + pixel * s.channels;
            const float *__restrict out = y + start + pixel * s.channels;
            const float *__restrict pull = gradient + start + pixel * s.channels;
            for (int64_t c = 0; c < s.channels; c++) {
                float z = out[c] > 0 ? pull[c] : 0;
                plain[c] += z;
                along[c] += z * (in[c] - middle[c]);
            }
        }
        for (int64_t g = 0; g < s.groups; g++) {
            double of_plain = 0, of_along = 0, own = scales[g];
            for (int64_t c = g * s.width(); c < (g + 1) * s.width(); c++) {
                of_plain += static_cast<double>(weight[c]) * plain[c];
                of_along += static_cast<double>(weight[c]) * along[c];
                of_bias[c] += plain[c];
                of_weight[c] += along[c] * scales[g];
            }
            double turned = -own * own * own * of_along / s.count();
            for (int64_t c = g * s.width(); c < (g + 1) * s.width(); c++) {
                slope[c] = weight[c] * scales[g];
                tilt[c] = static_cast<float>(turned);
                shift[c] = static_cast<float>(-own * of_plain / s.count());
            }
        }
        for (int64_t pixel = 0; pixel < s.pixels; pixel++) {
            const float *__restrict in = x + start + pixel * s.channels;
            const float *__restrict out = y + start + pixel * s.channels;
            float *__restrict pull = gradient + start + pixel * s.channels;
            for (int64_t c = 0; c < s.channels; c++) {
                float z = out[c] > 0 ? pull[c] : 0;
                pull[c] = z * slope[c] + (in[c] - middle[c]) * tilt[c] + shift[c];
            }
        }
    }
    return 0;
}
}
