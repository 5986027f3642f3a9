// Images seen from a little aside, with one interpolation, and images with a square hidden.
//
// Images are (images, channels, height, width). The place that each new pixel comes from is found once for all channels.
// An image with a border around it, so that no place lies outside of it, stays in the cache.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

struct Images {
    int64_t count, channels, height, width;
};

struct Affine {  // the largest of each change
    double angle, taller, wider, shear, down, right;
    int64_t edge;  // is the border the outermost pixels, or zero?
};

struct Buffer {
    void *data;
    explicit Buffer(size_t bytes) : data(std::calloc(bytes, 1)) {}
    ~Buffer() { std::free(data); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
};

struct Place {  // where a new pixel (x, y), counted from the centre, comes from: start + x · by_x + y · by_y
    float by_x[2], by_y[2], start[2];

    // Back by the distance, then the inverse of the rotation, of the shear (x + shear · y) and of the stretching.
    Place(const float *numbers, double magnitude, const Affine &most) {
        auto part = [&](int64_t k, double largest) { return (2.0 * numbers[k] - 1) * magnitude * largest; };
        double angle = part(0, most.angle), taller = std::exp(part(1, most.taller)), wider = std::exp(part(2, most.wider));
        double shear = part(3, most.shear), down = part(4, most.down), right = part(5, most.right);
        double cos = std::cos(angle), sin = std::sin(angle);
        double x[2] = {(cos + shear * sin) / wider, -sin / taller}, y[2] = {(sin - shear * cos) / wider, cos / taller};
        for (int k = 0; k < 2; k++) {
            by_x[k] = x[k];
            by_y[k] = y[k];
            start[k] = -(x[k] * right + y[k] * down);
        }
    }
};

// Where all new pixels of an image come from: the upper left of four pixels of the bordered image, and the shares of the
// lower and of the right ones.
void places(const Place &from, const Images &s, bool edge, int32_t *__restrict at, float *__restrict below,
            float *__restrict beside) {
    float middle_x = 0.5f * (s.width - 1), middle_y = 0.5f * (s.height - 1);
    float first = edge ? 1 : 0, last_x = edge ? s.width : s.width + 1, last_y = edge ? s.height : s.height + 1;
    int32_t stride = s.width + 3;
    for (int64_t row = 0; row < s.height; row++) {
        float y = row - middle_y;
        float row_x = from.by_y[0] * y + from.start[0] + middle_x + 1, row_y = from.by_y[1] * y + from.start[1] + middle_y + 1;
        for (int32_t column = 0; column < s.width; column++) {
            float x = column - middle_x;
            float to_x = std::min(std::max(from.by_x[0] * x + row_x, first), last_x);
            float to_y = std::min(std::max(from.by_x[1] * x + row_y, first), last_y);
            int32_t left = static_cast<int32_t>(to_x), top = static_cast<int32_t>(to_y);
            int64_t pixel = row * s.width + column;
            at[pixel] = top * stride + left;
            beside[pixel] = to_x - left;
            below[pixel] = to_y - top;
        }
    }
}

void between(const float *__restrict bordered, const int32_t *__restrict at, const float *__restrict below,
             const float *__restrict beside, float *__restrict out, int64_t pixels, int64_t stride) {
    for (int64_t pixel = 0; pixel < pixels; pixel++) {
        const float *here = bordered + at[pixel], *under = here + stride;
        float upper = here[0] + beside[pixel] * (here[1] - here[0]);
        float lower = under[0] + beside[pixel] * (under[1] - under[0]);
        out[pixel] = upper + below[pixel] * (lower - upper);
    }
}

}  // namespace

extern "C" int fedpu_affine(const float *x, const float *numbers, const float *magnitude, float *y, const Images *shape,
                            const Affine *most) {
    const Images &s = *shape;
    int64_t pixels = s.height * s.width, stride = s.width + 3;
    Buffer bordered((s.height + 3) * stride * sizeof(float)), at(pixels * sizeof(int32_t));
    Buffer below(pixels * sizeof(float)), beside(pixels * sizeof(float));
    if (!bordered.data || !at.data || !below.data || !beside.data) return 1;
    auto *inner = static_cast<float *>(bordered.data), *down = static_cast<float *>(below.data);
    auto *right = static_cast<float *>(beside.data);
    auto *where = static_cast<int32_t *>(at.data);
    for (int64_t image = 0; image < s.count; image++) {
        places(Place(numbers + 6 * image, magnitude[image], *most), s, most->edge, where, down, right);
        for (int64_t channel = 0; channel < s.channels; channel++, x += pixels, y += pixels) {
            for (int64_t row = 0; row < s.height; row++)
                std::memcpy(inner + (row + 1) * stride + 1, x + row * s.width, s.width * sizeof(float));
            between(inner, where, down, right, y, pixels, stride);
        }
    }
    return 0;
}

// centre: two parts of the sides a square, down and to the right; half: pixels of half of its side.
extern "C" int fedpu_cutout(const float *x, const float *centre, const float *half, float *y, const Images *shape) {
    const Images &s = *shape;
    int64_t pixels = s.height * s.width;
    for (int64_t image = 0; image < s.count; image++) {
        auto hidden = [&](int64_t place, float middle) { return std::fabs(place + 0.5f - middle) < half[image]; };
        float middle_y = centre[2 * image] * s.height, middle_x = centre[2 * image + 1] * s.width;
        int64_t left = 0, right = s.width;
        while (left < right && !hidden(left, middle_x)) left++;
        while (right > left && !hidden(right - 1, middle_x)) right--;
        for (int64_t channel = 0; channel < s.channels; channel++, x += pixels, y += pixels) {
            std::memcpy(y, x, pixels * sizeof(float));
            for (int64_t row = 0; row < s.height; row++)
                if (hidden(row, middle_y)) std::fill(y + row * s.width + left, y + row * s.width + right, 0.0f);
        }
    }
    return 0;
}
