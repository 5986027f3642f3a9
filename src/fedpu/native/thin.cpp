// Convolution, 2×2 max pooling and ReLU in one pass, forward and backward, for layers with few channels.
//
// Tensors are (channels, height, width, batch) of one client, the batch innermost. It is taken in blocks of LANES
// examples: a block is packed into memory that stays in the cache, and sums are kept in registers, one vector of LANES
// examples each. The order of every sum follows from the shapes alone.

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, OUTPUTS = 5, ROWS = 4, ACROSS = 4;  // 32 registers
#elif defined(__ARM_NEON)
constexpr int LANES = 4, OUTPUTS = 5, ROWS = 4, ACROSS = 4;  // 32 registers
#else
constexpr int LANES = 8, OUTPUTS = 2, ROWS = 2, ACROSS = 3;  // 16 registers
#endif
constexpr int TAPS = 5, CHANNELS = 4;
constexpr int NOWHERE = 4;  // the place of a maximum that ReLU has cut to zero

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t masks __attribute__((vector_size(4 * LANES)));
typedef uint8_t bytes __attribute__((vector_size(LANES)));

struct Shape {
    int64_t channels, height, width;  // of the input, with its padding
    int64_t outputs, kernel_height, kernel_width;
    int64_t padding_height, padding_width;
    int64_t batch;

    int64_t pooled_rows() const { return (height - kernel_height + 1) / 2; }
    int64_t pooled_columns() const { return (width - kernel_width + 1) / 2; }
    int64_t border() const { return kernel_width - 1; }
    int64_t taps() const { return channels * kernel_height * kernel_width; }
    // The gradient before pooling has a border of zeros on the left and on the right.
    int64_t spread_length() const { return 2 * pooled_columns() + 2 * border(); }
};

struct Block {
    lanes *data;
    explicit Block(int64_t vectors) {
        data = static_cast<lanes *>(std::aligned_alloc(64, (vectors * sizeof(lanes) + 63) / 64 * 64));
    }
    ~Block() { std::free(data); }
    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;
};

struct Part {  // of the batch
    int64_t first, count;
};

inline lanes larger(lanes a, lanes b) { return b > a ? b : a; }

inline lanes take(const float *from, int64_t count) {
    lanes v = {};
    std::memcpy(&v, from, count * sizeof(float));
    return v;
}

inline void put(float *to, lanes v, int64_t count) { std::memcpy(to, &v, count * sizeof(float)); }

// A whole block is the usual case, and then the length of its copies is known here.
template <class Run> void with_count(int64_t count, Run run) {
    if (count == LANES)
        run(LANES);
    else
        run(count);
}

template <class Visit> void each_pixel(const Shape &s, Visit visit) {
    int64_t height = s.height - 2 * s.padding_height, width = s.width - 2 * s.padding_width;
    for (int64_t c = 0; c < s.channels; c++)
        for (int64_t y = 0; y < height; y++)
            for (int64_t x = 0; x < width; x++)
                visit(((c * height + y) * width + x) * s.batch,
                      (c * s.height + y + s.padding_height) * s.width + x + s.padding_width);
}

void pack(const float *from, lanes *to, const Shape &s, Part part) {
    if (s.padding_height || s.padding_width) std::memset(to, 0, s.channels * s.height * s.width * sizeof(lanes));
    with_count(part.count, [&](int64_t count) {
        each_pixel(s, [&](int64_t outside, int64_t inside) { to[inside] = take(from + outside + part.first, count); });
    });
}

void unpack(const lanes *from, float *to, const Shape &s, Part part) {
    with_count(part.count, [&](int64_t count) {
        each_pixel(s, [&](int64_t outside, int64_t inside) { put(to + outside + part.first, from[inside], count); });
    });
}

// The maximum over each window of the convolution for WIDTH output channels, cut at zero, and where it was.
template <int WIDTH>
void forward(const lanes *x, const float *weights, const float *bias, float *y, uint8_t *place, const Shape &s,
             int64_t output, Part part) {
    int64_t rows = s.pooled_rows(), columns = s.pooled_columns();
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++) {
            lanes sum[WIDTH][4];
            for (int o = 0; o < WIDTH; o++)
                for (int corner = 0; corner < 4; corner++) sum[o][corner] = lanes{} + bias[output + o];
            const float *w = weights + output;
            for (int64_t c = 0; c < s.channels; c++)
                for (int64_t dy = 0; dy < s.kernel_height; dy++) {
                    const lanes *above = x + (c * s.height + 2 * row + dy) * s.width + 2 * column;
                    const lanes *below = above + s.width;
                    for (int64_t dx = 0; dx < s.kernel_width; dx++, w += s.outputs)
                        for (int o = 0; o < WIDTH; o++) {
                            sum[o][0] += above[dx] * w[o];
                            sum[o][1] += above[dx + 1] * w[o];
                            sum[o][2] += below[dx] * w[o];
                            sum[o][3] += below[dx + 1] * w[o];
                        }
                }
            for (int o = 0; o < WIDTH; o++) {
                lanes top = larger(sum[o][0], sum[o][1]), bottom = larger(sum[o][2], sum[o][3]);
                lanes highest = larger(top, bottom);
                masks right_above = sum[o][1] > sum[o][0], right_below = sum[o][3] > sum[o][2];  // 0 or −1
                masks at = bottom > top ? 2 - right_below : -right_above;
                masks dead = highest <= 0;  // false for what is no number: the run must notice it
                int64_t where = (((output + o) * rows + row) * columns + column) * s.batch + part.first;
                put(y + where, dead ? lanes{} : highest, part.count);
                bytes b = __builtin_convertvector(dead ? masks{} + NOWHERE : at, bytes);
                std::memcpy(place + where, &b, part.count);
            }
        }
}

template <int WIDTH>
void forward_up_to(int64_t width, const lanes *x, const float *weights, const float *bias, float *y, uint8_t *place,
                   const Shape &s, int64_t output, Part part) {
    if (width == WIDTH) return forward<WIDTH>(x, weights, bias, y, place, s, output, part);
    if constexpr (WIDTH > 1) forward_up_to<WIDTH - 1>(width, x, weights, bias, y, place, s, output, part);
}

// The gradient before pooling: each goes to the place that its maximum came from.
void spread(const float *gradient, const uint8_t *place, lanes *to, lanes *sums, const Shape &s, Part part) {
    int64_t rows = s.pooled_rows(), columns = s.pooled_columns(), length = s.spread_length();
    with_count(part.count, [&](int64_t count) {
        for (int64_t o = 0; o < s.outputs; o++)
            for (int64_t row = 0; row < rows; row++) {
                lanes *above = to + (o * 2 * rows + 2 * row) * length + s.border(), *below = above + length;
                for (int64_t column = 0; column < columns; column++) {
                    int64_t where = ((o * rows + row) * columns + column) * s.batch + part.first;
                    lanes g = take(gradient + where, count), none = {};
                    bytes b = {};
                    std::memcpy(&b, place + where, count);
                    masks at = __builtin_convertvector(b, masks);
                    above[2 * column] = at == 0 ? g : none;
                    above[2 * column + 1] = at == 1 ? g : none;
                    below[2 * column] = at == 2 ? g : none;
                    below[2 * column + 1] = at == 3 ? g : none;
                    sums[o] += at < NOWHERE ? g : none;
                }
            }
    });
}

// Add gradient times input over all positions to the sums of HEIGHT outputs and WIDTH neighbouring weights.
template <int HEIGHT, int WIDTH>
void weights_of(const lanes *g, const lanes *x, lanes *sums, const Shape &s) {
    int64_t rows = 2 * s.pooled_rows(), columns = 2 * s.pooled_columns(), length = s.spread_length(), taps = s.taps();
    lanes sum[HEIGHT][WIDTH];
    for (int o = 0; o < HEIGHT; o++)
        for (int t = 0; t < WIDTH; t++) sum[o][t] = sums[o * taps + t];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++) {
            const lanes *gs = g + row * length + column, *xs = x + row * s.width + column;
            for (int o = 0; o < HEIGHT; o++)
                for (int t = 0; t < WIDTH; t++) sum[o][t] += gs[o * rows * length] * xs[t];
        }
    for (int o = 0; o < HEIGHT; o++)
        for (int t = 0; t < WIDTH; t++) sums[o * taps + t] = sum[o][t];
}

template <int HEIGHT, int WIDTH>
void weights_up_to(int64_t height, int64_t width, const lanes *g, const lanes *x, lanes *sums, const Shape &s) {
    if (height == HEIGHT && width == WIDTH) return weights_of<HEIGHT, WIDTH>(g, x, sums, s);
    if constexpr (HEIGHT > 1)
        if (height < HEIGHT) return weights_up_to<HEIGHT - 1, WIDTH>(height, width, g, x, sums, s);
    if constexpr (WIDTH > 1)
        if (width < WIDTH) return weights_up_to<HEIGHT, WIDTH - 1>(height, width, g, x, sums, s);
}

void weights_of_block(const lanes *g, const lanes *x, lanes *sums, const Shape &s) {
    int64_t plane = 2 * s.pooled_rows() * s.spread_length();
    for (int64_t o = 0; o < s.outputs; o += ROWS)
        for (int64_t c = 0; c < s.channels; c++)
            for (int64_t dy = 0; dy < s.kernel_height; dy++)
                for (int64_t dx = 0; dx < s.kernel_width; dx += TAPS) {
                    int64_t height = s.outputs - o < ROWS ? s.outputs - o : ROWS;
                    int64_t width = s.kernel_width - dx < TAPS ? s.kernel_width - dx : TAPS;
                    int64_t tap = (c * s.kernel_height + dy) * s.kernel_width + dx;
                    weights_up_to<ROWS, TAPS>(height, width, g + o * plane + s.border(),
                                              x + (c * s.height + dy) * s.width + dx, sums + o * s.taps() + tap, s);
                }
}

// The gradient of ACROSS neighbouring inputs in DEPTH channels, from `channel` on.
template <int DEPTH> void inputs_of(const lanes *g, const float *weights, lanes *to, const Shape &s, int64_t channel) {
    int64_t rows = 2 * s.pooled_rows(), columns = 2 * s.pooled_columns(), reached = columns + s.border();
    int64_t kernel = s.kernel_height * s.kernel_width;
    for (int64_t y = 0; y < rows + s.kernel_height - 1; y++) {
        int64_t from = y - rows + 1 > 0 ? y - rows + 1 : 0;
        int64_t until = y < s.kernel_height - 1 ? y : s.kernel_height - 1;
        for (int64_t x = 0; x < reached; x += ACROSS) {
            // Further left and right there are only the border's zeros.
            int64_t first = x - columns + 1 > 0 ? x - columns + 1 : 0;
            int64_t end = x + ACROSS < s.kernel_width ? x + ACROSS : s.kernel_width;
            lanes sum[DEPTH][ACROSS] = {};
            for (int64_t o = 0; o < s.outputs; o++)
                for (int64_t dy = from; dy <= until; dy++) {
                    const lanes *row = g + (o * rows + y - dy) * s.spread_length() + x + s.border();
                    const float *w = weights + (o * s.channels + channel) * kernel + dy * s.kernel_width;
                    for (int64_t dx = first; dx < end; dx++)
                        for (int c = 0; c < DEPTH; c++)
                            for (int t = 0; t < ACROSS; t++) sum[c][t] += row[t - dx] * w[c * kernel + dx];
                }
            for (int c = 0; c < DEPTH; c++)
                for (int t = 0; t < ACROSS && x + t < reached; t++)
                    to[((channel + c) * s.height + y) * s.width + x + t] = sum[c][t];
        }
    }
}

template <int DEPTH>
void inputs_up_to(int64_t depth, const lanes *g, const float *weights, lanes *to, const Shape &s, int64_t channel) {
    if (depth == DEPTH) return inputs_of<DEPTH>(g, weights, to, s, channel);
    if constexpr (DEPTH > 1) inputs_up_to<DEPTH - 1>(depth, g, weights, to, s, channel);
}

void inputs_of_block(const lanes *g, const float *weights, lanes *to, const Shape &s) {
    std::memset(to, 0, s.channels * s.height * s.width * sizeof(lanes));  // what pooling never looked at stays zero
    for (int64_t c = 0; c < s.channels; c += CHANNELS)
        inputs_up_to<CHANNELS>(s.channels - c < CHANNELS ? s.channels - c : CHANNELS, g, weights, to, s, c);
}

float total(lanes v) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += v[i];
    return sum;
}

template <class Run> void each_part(int64_t batch, Run run) {
    for (int64_t first = 0; first < batch; first += LANES)
        run(Part{first, batch - first < LANES ? batch - first : LANES});
}

}  // namespace

extern "C" {

// y = relu(maxpool(conv(x) + bias)), and the place of each maximum; weights are (taps, outputs). 0 if all went well.
int fedpu_forward(const float *x, const float *weights, const float *bias, float *y, uint8_t *place, const Shape *s) {
    Block block(s->channels * s->height * s->width);
    if (!block.data) return 1;
    each_part(s->batch, [&](Part part) {
        pack(x, block.data, *s, part);
        for (int64_t o = 0; o < s->outputs; o += OUTPUTS)
            forward_up_to<OUTPUTS>(s->outputs - o < OUTPUTS ? s->outputs - o : OUTPUTS, block.data, weights, bias, y,
                                   place, *s, o, part);
    });
    return 0;
}

// Gradients of the weights (outputs, taps), the bias and, unless `of_inputs` is null, the inputs, given that of y.
int fedpu_backward(const float *gradient, const uint8_t *place, const float *x, const float *weights,
                   float *of_weights, float *of_bias, float *of_inputs, const Shape *s) {
    int64_t spreaded = s->outputs * 2 * s->pooled_rows() * s->spread_length();
    // A row of inputs is summed up ACROSS at a time, the last of which may reach beyond the gradient's end.
    Block block(s->channels * s->height * s->width), before(spreaded + ACROSS), sums(s->outputs * (s->taps() + 1));
    if (!block.data || !before.data || !sums.data) return 1;
    lanes *of_outputs = sums.data + s->outputs * s->taps();
    std::memset(sums.data, 0, s->outputs * (s->taps() + 1) * sizeof(lanes));
    std::memset(before.data, 0, (spreaded + ACROSS) * sizeof(lanes));
    each_part(s->batch, [&](Part part) {
        pack(x, block.data, *s, part);
        spread(gradient, place, before.data, of_outputs, *s, part);
        weights_of_block(before.data, block.data, sums.data, *s);
        if (!of_inputs) return;
        inputs_of_block(before.data, weights, block.data, *s);
        unpack(block.data, of_inputs, *s, part);
    });
    for (int64_t i = 0; i < s->outputs * s->taps(); i++) of_weights[i] = total(sums.data[i]);
    for (int64_t o = 0; o < s->outputs; o++) of_bias[o] = total(of_outputs[o]);
    return 0;
}
}
