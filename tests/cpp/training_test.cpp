// libtorch models trained on the device are equal to the CPU's to the last bit. The one file here that includes torch's C++ frontend.
#include <torch/nn.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <functional>
#include <sstream>

#include "src/runtime/options.h"
#include "tests/cpp/device_state.h"

namespace spool::test {
namespace {

torch::nn::Sequential mlp() {
  return torch::nn::Sequential(torch::nn::Linear(12, 16), torch::nn::ReLU(),
                               torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})), torch::nn::Linear(16, 16),
                               torch::nn::Tanh(), torch::nn::Linear(16, 5));
}

torch::nn::Sequential conv_net() {
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)), torch::nn::BatchNorm2d(8),
                               torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                               torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).stride(2)), torch::nn::BatchNorm2d(8),
                               torch::nn::ReLU(), torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten(), torch::nn::Linear(8, 5));
}

torch::nn::Sequential attention_net() {
  const auto layer = torch::nn::TransformerEncoderLayerOptions(12, 3).dim_feedforward(20).dropout(0.1);
  return torch::nn::Sequential(torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(layer, 2)),
                               torch::nn::Flatten(), torch::nn::Dropout(0.2), torch::nn::GELU(), torch::nn::Linear(48, 5));
}

using Net = std::function<torch::nn::Sequential()>;
using MakeOptimiser = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

struct Trained {
  torch::nn::Sequential net;
  std::vector<at::Tensor> losses;
};

/// Trains for some steps on a batch; all numbers are drawn on the CPU, so that every device starts equal.
Trained train(const Net& make, const MakeOptimiser& make_optimiser, c10::IntArrayRef batch, const at::Device& where,
              int steps = 6) {
  torch::manual_seed(3);
  plan_options().exact = true;  // eager's last bit is what these tests are about
  Trained trained{make(), {}};
  torch::nn::Sequential& net = trained.net;
  const at::Tensor x = torch::randn(batch).to(where);
  const at::Tensor y = torch::randint(5, {batch[0]}, torch::kLong).to(where);
  net->to(where);
  const auto optimiser = make_optimiser(net->parameters());
  const auto body = [&] {
    optimiser->zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(net->forward(x), y);
    loss.backward();
    optimiser->step();
    trained.losses.push_back(loss.detach());
  };
  for (int i = 0; i < steps; ++i) {
    if (where.is_cpu()) {
      body();
    } else {
      step(body);
    }
  }
  return trained;
}

void expect_equal_models(const torch::nn::Sequential& got, const torch::nn::Sequential& want) {
  const auto parameters = got->named_parameters();
  for (const auto& item : want->named_parameters()) {
    SCOPED_TRACE(item.key());
    expect_same(parameters[item.key()].detach(), item.value().detach());
  }
  const auto buffers = got->named_buffers();
  for (const auto& item : want->named_buffers()) {
    SCOPED_TRACE(item.key());
    expect_same(buffers[item.key()], item.value());
  }
}

void expect_trains_like_the_cpu(const Net& net, const MakeOptimiser& optimiser, c10::IntArrayRef batch) {
  ready({1});
  const Trained lazy = train(net, optimiser, batch, device());
  const std::int64_t compiled = counted("UncachedCompile");
  const Trained eager = train(net, optimiser, batch, at::kCPU);
  for (std::size_t i = 0; i < eager.losses.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(lazy.losses[i], eager.losses[i]);
  }
  expect_equal_models(lazy.net, eager.net);
  EXPECT_LE(compiled, 4) << "moving, the first step (it makes the optimiser's state), the second, and then the same ever after";
}

std::unique_ptr<torch::optim::Optimizer> sgd(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                             torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-3));
}

std::unique_ptr<torch::optim::Optimizer> adam(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(1e-2));
}

template <class Optimiser, class Options>
MakeOptimiser with(const Options& options) {
  return [options](std::vector<at::Tensor> parameters) { return std::make_unique<Optimiser>(std::move(parameters), options); };
}

TEST(Training, EachOptimiserEqualsTheCpu) {
  using namespace torch::optim;
  const std::pair<const char*, MakeOptimiser> optimisers[] = {
      {"Adagrad", with<Adagrad>(AdagradOptions(0.05).lr_decay(1e-2).weight_decay(1e-3))},
      {"Adam with amsgrad", with<Adam>(AdamOptions(1e-2).amsgrad(true).weight_decay(1e-3))},
      {"AdamW", with<AdamW>(AdamWOptions(1e-2).weight_decay(0.1))},
      {"RMSprop", with<RMSprop>(RMSpropOptions(1e-2).momentum(0.9).centered(true))},
      {"SGD with Nesterov", with<SGD>(SGDOptions(0.05).momentum(0.9).nesterov(true))},
  };
  for (const auto& [name, optimiser] : optimisers) {
    SCOPED_TRACE(name);
    expect_trains_like_the_cpu(mlp, optimiser, {9, 12});
  }
}

TEST(Training, LbfgsWithAClosureEqualsTheCpu) {
  const auto losses = [](const at::Device& where) {
    torch::manual_seed(2);
    const at::Tensor x = torch::randn({6, 3}).to(where), y = torch::randn({6, 1}).to(where);
    torch::nn::Linear layer(3, 1);
    layer->to(where);
    torch::optim::LBFGS optimiser(layer->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(4));
    std::vector<at::Tensor> out;
    for (int i = 0; i < 4; ++i) {
      out.push_back(optimiser.step([&] {
        optimiser.zero_grad();
        const at::Tensor loss = torch::mse_loss(layer->forward(x), y);
        loss.backward();
        return loss;
      }));
    }
    return out;
  };
  const auto got = losses(device()), want = losses(at::kCPU);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(at::allclose(got[i].detach().cpu(), want[i].detach(), 1e-4, 1e-6)) << i;
  }
}

TEST(Training, AttentionWithDropoutEqualsTheCpu) { expect_trains_like_the_cpu(attention_net, adam, {4, 4, 12}); }

TEST(Training, MlpWithSgdEqualsTheCpu) { expect_trains_like_the_cpu(mlp, sgd, {9, 12}); }

TEST(Training, MlpWithAdamEqualsTheCpu) { expect_trains_like_the_cpu(mlp, adam, {9, 12}); }

TEST(Training, ConvNetWithBatchNormEqualsTheCpu) { expect_trains_like_the_cpu(conv_net, sgd, {4, 3, 12, 12}); }

TEST(Training, ConvNetWithAdamEqualsTheCpu) { expect_trains_like_the_cpu(conv_net, adam, {4, 3, 12, 12}); }

TEST(Training, EvaluationEqualsTheCpu) {
  Trained lazy = train(conv_net, sgd, {4, 3, 12, 12}, device());
  Trained eager = train(conv_net, sgd, {4, 3, 12, 12}, at::kCPU);
  lazy.net->eval();
  eager.net->eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::randn({2, 3, 12, 12});
  auto predict = compile([&](const at::Tensor& batch) { return lazy.net->forward(batch); }, {.full_graph = true});
  expect_same(predict(x.to(device())), eager.net->forward(x));
}

TEST(Training, MovingAModuleKeepsItsParameters) {
  torch::nn::Linear layer(3, 2);
  const at::Tensor before = layer->weight;
  torch::optim::SGD optimiser(layer->parameters(), 0.5);
  layer->to(device());
  EXPECT_TRUE(before.is_same(layer->weight));
  EXPECT_EQ(before.device(), device());
  const at::Tensor start = before.detach().cpu();
  step([&] {
    layer->forward(at::ones({1, 3}, at::TensorOptions(device()))).sum().backward();
    optimiser.step();
  });
  expect_same(before.detach(), start - 0.5);
}

TEST(Saving, AModelTrainedHereLoadsOnTheCpuAndBack) {
  const Trained trained = train(conv_net, sgd, {4, 3, 12, 12}, device(), 2);
  std::stringstream stream;
  torch::save(trained.net, stream);
  const std::string saved = stream.str();

  torch::nn::Sequential on_cpu = conv_net();
  std::stringstream first(saved);
  torch::load(on_cpu, first, torch::kCPU);
  EXPECT_TRUE(on_cpu->parameters().front().device().is_cpu());
  expect_equal_models(trained.net, on_cpu);

  torch::nn::Sequential back = conv_net();
  std::stringstream second(saved);
  torch::load(back, second, torch::kCPU);
  back->to(device());
  expect_equal_models(back, on_cpu);
}

TEST(Saving, AnOptimiserAndAModelFromTheCpuGoOnTrainingHere) {
  // Trained on the CPU, saved, and loaded into a model that is on the device already.
  const Trained trained = train(mlp, adam, {9, 12}, at::kCPU, 3);
  const auto optimiser = adam(trained.net->parameters());
  const at::Tensor x = torch::randn({4, 12}), y = torch::randint(5, {4}, torch::kLong);
  const auto go_on = [](const torch::nn::Sequential& net, torch::optim::Optimizer& how, const at::Tensor& in,
                        const at::Tensor& out) {
    how.zero_grad();
    torch::nn::functional::cross_entropy(const_cast<torch::nn::Sequential&>(net)->forward(in), out).backward();
    how.step();
  };
  go_on(trained.net, *optimiser, x, y);
  std::stringstream model_file, optimiser_file;
  torch::save(trained.net, model_file);
  torch::save(*optimiser, optimiser_file);

  // libtorch's reader knows no device xla: it reads for the CPU, and what it has read is moved.
  torch::nn::Sequential here = mlp();
  torch::load(here, model_file, torch::kCPU);
  here->to(device());
  const auto loaded = adam(here->parameters());
  torch::load(*loaded, optimiser_file, torch::kCPU);
  for (auto& [parameter, kept] : loaded->state()) {
    auto& state = static_cast<torch::optim::AdamParamState&>(*kept);
    state.exp_avg(state.exp_avg().to(device()));
    state.exp_avg_sq(state.exp_avg_sq().to(device()));
  }
  EXPECT_EQ(here->parameters().front().device(), device());
  expect_equal_models(here, trained.net);
  go_on(here, *loaded, x.to(device()), y.to(device()));
  go_on(trained.net, *optimiser, x, y);
  const auto got = here->parameters(), want = trained.net->parameters();
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(at::allclose(got[i].detach().cpu(), want[i].detach(), 1e-4, 1e-6)) << i;
  }
}

TEST(Saving, TensorsAreSavedAndLoaded) {
  const at::Tensor x = ready({3, 4});
  std::stringstream stream;
  torch::save(std::vector<at::Tensor>{x, x.t() * 2}, stream);  // the second is pending
  std::vector<at::Tensor> loaded;
  torch::load(loaded, stream, torch::kCPU);
  ASSERT_EQ(loaded.size(), 2);
  const at::Tensor want = at::arange(12, at::kFloat).view({3, 4});
  expect_same(loaded[0].to(device()), want);
  expect_same(loaded[1].to(device()), want.t() * 2);
}

}  // namespace
}  // namespace spool::test
