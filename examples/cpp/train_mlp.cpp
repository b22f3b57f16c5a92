// Trains a multilayer perceptron on Spool's device from C++: an existing libtorch program has to change its
// device, and to put a region around its step. No Python is in the process.
#include <spool/spool.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

namespace {

struct Options {
  int64_t layers = 6;
  int64_t width = 64;
  int64_t batch = 32;
  int64_t steps = 100;
  int64_t log_every = 10;
  double lr = 0.05;
  uint64_t seed = 0;
  bool check = false;
};

/// Runs the body of one step; the device decides what is around it.
using Region = std::function<void(const std::function<void()>&)>;

torch::nn::Sequential build(const Options& o) {
  torch::nn::Sequential net;
  for (int64_t i = 1; i < o.layers; ++i) {
    net->push_back(torch::nn::Linear(o.width, o.width));
    net->push_back(torch::nn::Tanh());
  }
  net->push_back(torch::nn::Linear(o.width, 1));
  return net;
}

/// Trains from `o.seed` on and returns every step's loss. Weights and data are made on the CPU, so that all
/// devices start equal.
std::vector<float> train(const Options& o, const torch::Device& device, const Region& region) {
  torch::manual_seed(o.seed);
  torch::nn::Sequential net = build(o);
  // The function to learn: the sine of the inputs' mean, stretched so that it bends.
  const torch::Tensor host_x = torch::randn({o.batch, o.width});
  const torch::Tensor host_y = host_x.mean(1, /*keepdim=*/true).mul(8).sin();

  net->to(device);
  const torch::Tensor x = host_x.to(device);
  const torch::Tensor y = host_y.to(device);
  torch::optim::SGD optimiser(net->parameters(), torch::optim::SGDOptions(o.lr).momentum(0.9));

  std::printf("%s: %lld layers of width %lld, batch %lld, %lld steps\n", device.str().c_str(), static_cast<long long>(o.layers),
              static_cast<long long>(o.width), static_cast<long long>(o.batch), static_cast<long long>(o.steps));
  std::vector<torch::Tensor> pending;
  for (int64_t step = 1; step <= o.steps; ++step) {
    torch::Tensor loss;
    region([&] {
      optimiser.zero_grad();
      loss = torch::mse_loss(net->forward(x), y);
      loss.backward();
      optimiser.step();
    });
    pending.push_back(loss.detach());
    if (step % o.log_every == 0 || step == o.steps)
      std::printf("step %5lld  loss %.9g\n", static_cast<long long>(step), static_cast<double>(loss.item<float>()));
  }

  std::vector<float> losses;
  losses.reserve(pending.size());
  for (const torch::Tensor& loss : pending) losses.push_back(loss.item<float>());
  return losses;
}

/// Compares bit for bit and says what came out; true when nothing differs.
bool same(const std::vector<float>& spool, const std::vector<float>& cpu) {
  size_t differing = 0;
  double worst = 0;
  for (size_t i = 0; i < spool.size(); ++i) {
    if (spool[i] == cpu[i]) continue;
    ++differing;
    worst = std::fmax(worst, std::fabs(static_cast<double>(spool[i]) - static_cast<double>(cpu[i])));
  }
  if (differing == 0) {
    std::printf("all %zu losses equal the CPU's\n", spool.size());
    return true;
  }
  std::printf("%zu of %zu losses differ from the CPU's, by at most %.3g\n", differing, spool.size(), worst);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app{"Trains a multilayer perceptron on Spool's device."};
  app.option_defaults()->always_capture_default();
  app.add_option("--layers", o.layers, "linear layers")->check(CLI::PositiveNumber);
  app.add_option("--width", o.width, "features of a layer")->check(CLI::PositiveNumber);
  app.add_option("--batch", o.batch, "samples in the batch")->check(CLI::PositiveNumber);
  app.add_option("--steps", o.steps, "steps to train")->check(CLI::PositiveNumber);
  app.add_option("--log-every", o.log_every, "steps between two printed losses")->check(CLI::PositiveNumber);
  app.add_option("--lr", o.lr, "learning rate of SGD, whose momentum is 0.9");
  app.add_option("--seed", o.seed, "fixes weights and data");
  app.add_flag("--check", o.check, "train on the CPU too, and fail unless all losses are equal");
  CLI11_PARSE(app, argc, argv);

  const std::vector<float> losses = train(o, spool::device(), [](const auto& body) { spool::step(body); });
  if (!o.check) return 0;
  const std::vector<float> cpu = train(o, torch::kCPU, [](const auto& body) { body(); });
  return same(losses, cpu) ? 0 : 1;
}
