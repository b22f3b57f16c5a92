#include "src/runtime/device.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "src/base/error.h"
#include "src/base/scope.h"
#include "src/base/settings.h"
#include "src/cache/stored_plan.h"
#include "src/graph/functionalise.h"
#include "src/passes/pipeline.h"
#include "src/runtime/metrics.h"
#include "src/runtime/watch.h"

namespace spool {
namespace {

LocationHook location_hook = nullptr;

/// How far over its bound a tape may grow while it waits for a place where it repeats itself.
constexpr std::size_t overrun = 32;

Device* instance = nullptr;

std::int64_t entered() { return explain::on() ? trace::now() : 0; }

/// Tells, when it goes, that a region has been left.
class Leaving {
 public:
  explicit Leaving(const Region& region) : region_(region) {}
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;
  ~Leaving() {
    if (region_.entered != 0) {
      explain::left(title(region_), static_cast<double>(trace::now() - region_.entered) * 1e-6);
    }
  }

 private:
  const Region& region_;
};

}  // namespace

void set_location_hook(LocationHook hook) { location_hook = hook; }

LocationPtr current_location() { return location_hook != nullptr ? location_hook() : nullptr; }

const char* describe(Cut cause) {
  switch (cause) {
    case Cut::Sync: return "sync()";
    case Cut::StepEntry: return "entry of step()";
    case Cut::StepExit: return "exit of step()";
    case Cut::CompileEntry: return "entry of compile()";
    case Cut::CompileExit: return "exit of compile()";
    case Cut::Read: return "a read";
    case Cut::RunAtOnce: return "an op that can't be recorded";
    case Cut::Barrier: return "_barrier()";
    case Cut::Bound: return "the tape's bound";
    case Cut::Eager: return "eager mode";
    case Cut::Extracted: return "a graph that torch.compile made";
  }
  return "?";
}

std::string describe(Cut cause, const LocationPtr& where) { return str(describe(cause), " at ", describe(where)); }

std::string title(const Region& region) {
  return region.kind == Region::Kind::Step ? "step() at " + describe_line(region.where) : region.name;
}

bool breaks_graph(Cut cause) { return cause != Cut::StepExit && cause != Cut::CompileExit && cause != Cut::Eager; }

Device& Device::get() {
  static Device& device = [&]() -> Device& {
    instance = new Device;
    std::atexit([] { instance->shut_down(); });
    // A child must find the locks free and know that it has no runtime thread.
    pthread_atfork(
        [] {
          instance->mutex_.lock();
          instance->queue_.before_fork();
        },
        [] {
          instance->queue_.after_fork_in_parent();
          instance->mutex_.unlock();
        },
        [] {
          instance->queue_.after_fork_in_child();
          instance->mutex_.unlock();
        });
    return *instance;
  }();
  return device;
}

Device::Device()
    : cache_(settings().cache_size),
      queue_(settings().in_flight),
      engine_(&spool::engine(settings().engine)),
      follow_(settings().follow) {}

void Device::bound_tape(const Call& next) {
  if (Extraction* extraction = Extraction::here(); extraction != nullptr) {
    extraction->admit(next);
    return;
  }
  const std::size_t ops = settings().max_tape_ops;
  const std::size_t bytes = settings().max_tape_bytes;
  if (tape_.length() < ops && tape_.result_bytes() < bytes) {
    return;
  }
  if (tape_.starts_like(next) || tape_.length() >= overrun * ops || tape_.result_bytes() >= overrun * bytes) {
    // A bound is no break of anyone's rules: inside a full_graph region the tape just grows on.
    const bool whole =
        Watch::here() != nullptr || std::any_of(regions_.begin(), regions_.end(), [](const Region& r) { return r.full_graph; });
    if (!whole) {
      cut(Cut::Bound, nullptr);
    }
  }
}

void Device::check_regions(Cut cause, const CacheEntry* entry, const std::vector<bool>& live, const LocationPtr& where) {
  for (const Region& region : regions_) {
    if (region.kind != Region::Kind::Compile) {
      continue;
    }
    SPOOL_CHECK(!region.full_graph || !breaks_graph(cause), Runtime, "[compile] full_graph=True, but the graph of '", region.name,
                "' is broken by ", describe(cause, where),
                ". Move that out of the region, or allow breaks with full_graph=False.");
    if (region.max_graphs < 0 || &region != innermost()) {
      continue;
    }
    const auto& known = region_graphs_[region.key];
    if (known.size() < static_cast<std::size_t>(region.max_graphs) || (entry != nullptr && known.contains(entry->id))) {
      continue;
    }
    std::vector<std::shared_ptr<CacheEntry>> earlier;
    for (const auto& [id, weak] : known) {
      if (auto strong = weak.lock()) {
        earlier.push_back(std::move(strong));
      }
    }
    const auto path = tape_.path();
    const std::string why = earlier.empty()
                                ? "the plans of the earlier ones are no longer in the cache, so what differs is not known"
                                : "it " + explain::describe(explain::nearest({path, live, engine_}, earlier));
    fail(ErrorKind::Runtime, "[compile] '", region.name,
         "' would need a graph more than num_different_graphs_allowed=", region.max_graphs, ", cut by ", describe(cause, where),
         ": ", why, ". Make its inputs and the path of its Python code equal to before, or raise the limit.");
  }
}

void Device::refuse_in_extraction(const char* op) {
  if (Extraction* extraction = Extraction::here(); extraction != nullptr) {
    extraction->abandon(str("it needs a value or a cut for ", op));
  }
}

void Device::cut(Cut cause, const LocationPtr& place, const Region* closing) {
  refuse_in_extraction(describe(cause));
  if (tape_.empty()) {
    return;
  }
  std::vector<bool> live = tape_.live();
  TapeNode& leaf = tape_.leaf();
  CacheEntry* entry = cache_.find(leaf, live, *engine_, plan_options());
  const LocationPtr& where = place == nullptr ? leaf.location : place;
  check_regions(cause, entry, live, where);
  const bool breaks = !regions_.empty() && breaks_graph(cause) && cause != Cut::StepEntry && cause != Cut::CompileEntry;
  if (breaks) {
    metrics::count("GraphBreak");
    if (settings().logs("break")) {
      std::cerr << "[spool] graph broken by " << describe(cause, where) << '\n';
    }
  }
  const std::string region = entry == nullptr || trace::on() ? region_title(cause, where, closing) : "";
  explain::cut(region, describe(cause), where, breaks);
  try {
    if (entry == nullptr) {
      const auto path = tape_.path();
      const explain::Candidate tape{path, live, engine_, plan_options()};
      explain::CompileNote note{.region = region, .cause = describe(cause), .where = where};
      note.reason = history_.why(tape, region);
      auto executable = compile(path, live, note);
      entry = &cache_.insert(leaf, live, *engine_, std::move(executable), plan_options());
      entry->id = note.graph;
      history_.add(tape, region, *entry->place);
    } else {
      metrics::count("CachedCompile");
      if (explain::on() && !explain::has_graph(entry->id)) {
        explain::graph(explain::note(entry->id, graph_of(tape_.path(), live), engine_->name()));
      }
    }
    if (const Region* inside = innermost(); inside != nullptr && inside->max_graphs >= 0) {
      region_graphs_[inside->key].try_emplace(entry->id, *entry->place);
    }
    if (Watch* watch = Watch::here(); watch != nullptr) {
      watch->cut(cause, tape_, entry->executable);
    }
    if (entry->executable != nullptr) {
      const auto slots = tape_.slots();
      launch(
          entry->executable, [&](std::uint32_t i) -> Slot& { return *slots[i]; }, std::move(tape_.numbers()),
          std::move(tape_.generators()), region);
    }
  } catch (const Error& error) {
    abandon(live, error);
    throw;
  } catch (const std::exception& error) {
    const std::string message = str("[compile] ", error.what());
    abandon(live, Error(ErrorKind::Runtime, message));
    throw Error(ErrorKind::Runtime, message);
  }
  tape_.reset();
  scopes_.clear();
  cache_.shrink(tape_);
}

Graph Device::make_plan(const Graph& recorded, Executable& executable) {
  const StoredPlan stored(recorded, *engine_, plan_options());
  if (std::optional<Graph> lowered = stored.find()) {
    try {
      const metrics::Timer timer("CacheLoadTime");
      executable.plan = engine_->load(*lowered);
      metrics::count("PersistentCacheHit");
      return std::move(*lowered);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::OutOfMemory) {
        throw;
      }
      std::cerr << "[spool] the persistent cache ignores a plan: " << error.what() << '\n';
    }
  }
  const metrics::Timer timer("CompileTime");
  metrics::count("UncachedCompile");
  Graph graph = optimise(recorded);
  if (graph.nodes.empty() && graph.outputs.empty()) {
    return graph;
  }
  if (!stored.open() && !explain::on()) {
    executable.plan = engine_->compile(graph, plan_options());
    return graph;
  }
  Graph lowered;
  executable.plan = engine_->compile(graph, plan_options(), &lowered);
  if (stored.open()) {
    metrics::count("PersistentCacheMiss");
    stored.put(lowered);
  }
  return lowered;
}

Graph Device::graph_of(const std::vector<const TapeNode*>& path, const std::vector<bool>& live) const {
  Graph graph = optimise(functionalise(path, live));
  Graph lowered;
  if (!graph.nodes.empty() || !graph.outputs.empty()) {
    engine_->compile(graph, plan_options(), &lowered);
  }
  return lowered;
}

std::shared_ptr<Executable> Device::compile(const std::vector<const TapeNode*>& path, const std::vector<bool>& live) {
  const Region* inside = innermost();
  explain::CompileNote note{.region = inside == nullptr ? "torch.compile" : title(*inside), .cause = describe(Cut::Extracted)};
  note.reason = {.kind = explain::Reason::Kind::Ahead,
                 .length = path.size(),
                 .op = path.front()->signature->op->name,
                 .where = path.front()->location,
                 .what = "it is compiled ahead of its first run, for a caller that keeps the plan"};
  return compile(path, live, note);
}

std::shared_ptr<Executable> Device::compile(const std::vector<const TapeNode*>& path, const std::vector<bool>& live,
                                            explain::CompileNote& note) {
  trace::Range told(trace::Event::Kind::Compile, "spool::compile");
  const std::int64_t start = trace::now();
  note.graph = ++graphs_;
  told.of(note.graph);
  auto executable = std::make_shared<Executable>();
  executable->engine = engine_;
  executable->graph = note.graph;
  const Graph graph = make_plan(functionalise(path, live), *executable);
  if (executable->plan == nullptr) {
    executable = nullptr;
  } else {
    executable->inputs = graph.inputs;
    executable->outputs = graph.outputs;
    std::set<ValueId> written;
    for (const Node& node : graph.nodes) {
      for (const ValueId value : mutated(node)) {
        written.insert(value);
      }
    }
    for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
      const bool replaced = std::any_of(graph.outputs.begin(), graph.outputs.end(),
                                        [&](const GraphOutput& output) { return output.input == static_cast<std::int32_t>(i); });
      executable->owned.push_back(static_cast<std::uint8_t>(replaced || written.contains(graph.inputs[i].value)));
    }
    for (const GraphOutput& output : graph.outputs) {
      executable->output_bytes.push_back(graph.values[static_cast<std::size_t>(output.value)].nbytes);
    }
  }
  note.milliseconds = static_cast<double>(trace::now() - start) * 1e-6;
  if (settings().logs("compile")) {
    std::cerr << "[spool] compiled graph " << note.graph << " of " << path.size() << " ops in " << note.milliseconds << " ms in '"
              << note.region << "', cut by " << note.cause << " at " << describe(note.where) << ": "
              << explain::describe(note.reason) << '\n';
  }
  if (explain::on()) {
    explain::graph(explain::note(note.graph, graph, engine_->name()));
    explain::compiled(note);
  }
  return executable;
}

std::string Device::region_title(Cut cause, const LocationPtr& where, const Region* closing) const {
  if (const Region* inside = closing != nullptr ? closing : innermost(); inside != nullptr) {
    return title(*inside);
  }
  return str(describe(cause), " at ", describe_line(where));
}

void Device::note_recorded() {
  if (!trace::collecting() || Extraction::here() != nullptr) {
    return;
  }
  if (scopes_.empty()) {
    recording_since_ = trace::now();
  }
  scopes_.resize(tape_.length() - 1);  // ops from before the profiler began have none
  scopes_.push_back(scope::current_shared());
}

std::shared_ptr<const trace::LaunchNote> Device::note_launch(std::uint64_t graph, const std::string& region) {
  auto note = std::make_shared<trace::LaunchNote>();
  note->graph = graph;
  note->region = region;
  note->flow = ++flows_;
  if (!scopes_.empty()) {
    trace::add({.kind = trace::Event::Kind::Record,
                .name = "spool::record",
                .start = recording_since_,
                .end = trace::now(),
                .graph = graph});
    const auto path = tape_.path();
    for (std::size_t i = 0; i < std::min(path.size(), scopes_.size()); ++i) {
      if (scopes_[i] != nullptr) {
        note->scopes.emplace(path[i]->location.get(), *scopes_[i]);
      }
    }
  }
  explain::launched(region, graph);
  return note;
}

template <class SlotAt>
void Device::launch(const std::shared_ptr<Executable>& shared, const SlotAt& slot_at, std::vector<Number> numbers,
                    std::vector<GeneratorState> generators, const std::string& region) {
  const Executable& executable = *shared;
  trace::Range told(trace::Event::Kind::Launch, "spool::launch");
  Launch launch;
  if (trace::on()) {
    launch.note = note_launch(executable.graph, region);
    told.of(executable.graph, launch.note->flow);
  }
  launch.executable = shared;
  for (std::size_t i = 0; i < executable.outputs.size(); ++i) {
    auto buffer = std::make_shared<Buffer>();
    buffer->nbytes = executable.output_bytes[i];
    launch.outputs.push_back(std::move(buffer));
  }
  // An owned input is taken from its slot, so that the run will be its only holder unless someone keeps the buffer to read it.
  std::int64_t aliased = 0;
  for (std::size_t i = 0; i < executable.inputs.size(); ++i) {
    Slot& slot = slot_at(executable.inputs[i].slot);
    launch.inputs.push_back(executable.owned[i] != 0 ? std::exchange(slot.buffer, nullptr) : slot.buffer);
  }
  for (std::size_t i = 0; i < executable.outputs.size(); ++i) {
    const GraphOutput& output = executable.outputs[i];
    slot_at(output.slot).buffer = launch.outputs[i];
    if (output.input >= 0 && launch.inputs[static_cast<std::size_t>(output.input)]->readers == 0) {
      ++aliased;
    }
  }
  launch.numbers = std::move(numbers);
  launch.generators = std::move(generators);
  metrics::sample("SyncTensors", static_cast<double>(launch.outputs.size()), metrics::Unit::Count);
  metrics::sample("InputOutputAliasCount", static_cast<double>(aliased), metrics::Unit::Count);
  if (settings().logs("launch")) {
    std::cerr << "[spool] launched a plan of " << executable.inputs.size() << " inputs and " << launch.outputs.size()
              << " outputs, " << aliased << " of them in place\n";
  }
  queue_.submit(std::move(launch));
}

void Device::launch(const Extracted& graph, std::span<Slot* const> slots, std::vector<Number> numbers) {
  refuse_in_extraction("another compiled graph");
  auto guard = lock();
  const auto is_pending = [&] {
    for (std::size_t i = 0; i < graph.read.size(); ++i) {
      if (tape_.touches(*slots[i]) && (graph.replaced[i] != 0 || (graph.read[i] != 0 && slots[i]->dirty))) {
        return true;
      }
    }
    return false;
  };
  if (!tape_.empty() && is_pending()) {
    guard.unlock();
    const LocationPtr where = current_location();
    guard.lock();
    if (is_pending()) {
      cut(Cut::Extracted, where);
    }
  }
  if (graph.executable == nullptr) {
    return;
  }
  const auto slot_at = [&](std::uint32_t i) -> Slot& { return *slots[graph.storage_of.empty() ? i : graph.storage_of[i]]; };
  for (const GraphInput& input : graph.executable->inputs) {
    Slot& slot = slot_at(input.slot);
    if (slot.buffer == nullptr) {
      slot.buffer = std::make_shared<Buffer>();
      slot.buffer->nbytes = slot.nbytes;
      slot.buffer->memory = engine_->allocate(slot.nbytes);
    }
  }
  try {
    launch(graph.executable, slot_at, std::move(numbers), {}, innermost() == nullptr ? "torch.compile" : title(*innermost()));
  } catch (const Error& error) {
    const auto failure = std::make_shared<const Error>(error);
    for (const GraphOutput& output : graph.executable->outputs) {
      poison(slot_at(output.slot), failure);
    }
    throw;
  }
}

void Device::poison(const std::vector<bool>& live, const std::shared_ptr<const Error>& failure) {
  const auto slots = tape_.slots();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (live[i]) {
      poison(*slots[i], failure);
    }
  }
}

void Device::poison(Slot& slot, const std::shared_ptr<const Error>& failure) {
  slot.buffer = std::make_shared<Buffer>();
  slot.buffer->nbytes = slot.nbytes;
  slot.buffer->failure = failure;
}

void Device::abandon(const std::vector<bool>& live, const Error& error) {
  TapeNode& leaf = tape_.leaf();
  poison(live, std::make_shared<const Error>(error));
  tape_.reset();
  scopes_.clear();
  tape_.prune(&leaf);
}

void Device::raise(const std::shared_ptr<const Error>& failure) {
  if (failure != nullptr) {
    queue_.told(failure);
    throw Error(*failure);
  }
}

BufferPtr Device::read(Slot& slot, const char* op) {
  refuse_in_extraction(op);
  cut_for({&slot}, op, Cut::Read);
  BufferPtr buffer;
  {
    const auto guard = lock();
    buffer = slot.buffer;
  }
  if (buffer == nullptr) {
    return nullptr;
  }
  queue_.wait(buffer->ready);
  raise(buffer->failure);
  return buffer;
}

void Device::cut_for(const std::vector<Slot*>& slots, const char* op, Cut cause, bool touched) {
  refuse_in_extraction(op);
  auto guard = lock();
  const auto pending = [&] {
    return std::any_of(slots.begin(), slots.end(),
                       [&](const Slot* slot) { return tape_.touches(*slot) && (touched || slot->dirty); });
  };
  if (!pending()) {
    return;
  }
  LocationPtr where;
  if (!regions_.empty() || explain::on() || settings().logs("compile")) {
    guard.unlock();
    const LocationPtr line = current_location();
    auto named = line == nullptr ? std::make_shared<Location>() : std::make_shared<Location>(*line);
    named->scope = named->scope.empty() ? op : named->scope + ", " + op;
    where = std::move(named);
    guard.lock();
  }
  if (pending()) {
    cut(cause, where);
  }
}

void Device::sync(bool wait) {
  const LocationPtr where = current_location();
  {
    const auto guard = lock();
    told_pending_ = false;
    cut(Cut::Sync, where);
  }
  if (wait) {
    wait_for_all();
  } else {
    raise(queue_.take_failure());
  }
}

void Device::barrier() {
  const LocationPtr where = current_location();
  const auto guard = lock();
  cut(Cut::Barrier, where);
}

void Device::synchronize() {
  const LocationPtr where = current_location();
  bool tell = false;
  std::size_t pending = 0;
  {
    const auto guard = lock();
    for (const Region& region : regions_) {
      SPOOL_CHECK(!region.full_graph, Runtime, "[synchronize] called inside compile(full_graph=True) of '", region.name, "' at ",
                  describe(where),
                  ". A region that is one graph can't wait for itself: move the call out of it, or use full_graph=False.");
    }
    pending = tape_.length();
    tell = pending != 0 && regions_.empty() && !told_pending_;
    told_pending_ = told_pending_ || tell;
  }
  if (tell) {
    std::cerr << "[synchronize] " << pending << " recorded ops are still pending at " << describe(where)
              << ": synchronize() waits only for what has been launched. Call sync(wait=True) to launch and wait.\n";
  }
  wait_for_all();
}

void Device::wait_for_all() {
  queue_.wait(queue_.newest());
  raise(queue_.take_failure());
}

void Device::begin_step() {
  const LocationPtr where = current_location();
  const auto guard = lock();
  cut(Cut::StepEntry, where);
  regions_.push_back({.kind = Region::Kind::Step, .id = next_region_++, .name = "step", .where = where, .entered = entered()});
}

void Device::end_step(bool failed) {
  const LocationPtr where = current_location();
  const auto guard = lock();
  const auto thread = std::this_thread::get_id();
  const auto found = std::find_if(regions_.rbegin(), regions_.rend(), [&](const Region& region) {
    return region.kind == Region::Kind::Step && region.thread == thread;
  });
  SPOOL_CHECK(found != regions_.rend(), Runtime, "[step] ended without having begun in this thread");
  const auto open = regions_.rend() - found - 1;
  // Inner regions whose ends an exception skipped are closed with it.
  const std::size_t skipped = close_inside(static_cast<std::size_t>(open));
  const Region closed = regions_[static_cast<std::size_t>(open)];
  const Leaving leaving(closed);
  regions_.erase(regions_.begin() + open);
  SPOOL_CHECK(failed || skipped == 0, Runtime, "[step] a compile() region opened inside this step is still open at its end");
  cut(Cut::StepExit, where, &closed);
}

bool Device::in_full_graph() {
  const auto guard = lock();
  return std::any_of(regions_.begin(), regions_.end(), [](const Region& region) { return region.full_graph; });
}

std::uint64_t Device::begin_compile(Region region) {
  const LocationPtr where = current_location();
  const auto guard = lock();
  cut(Cut::CompileEntry, where);
  region.kind = Region::Kind::Compile;
  region.id = next_region_++;
  region.entered = entered();
  regions_.push_back(std::move(region));
  return regions_.back().id;
}

void Device::end_compile(std::uint64_t id, bool failed) {
  const LocationPtr where = current_location();
  const auto guard = lock();
  const auto open = std::find_if(regions_.begin(), regions_.end(), [&](const Region& region) { return region.id == id; });
  SPOOL_CHECK(open != regions_.end(), Runtime, "[compile] region ", id, " ended without being open");
  close_inside(static_cast<std::size_t>(open - regions_.begin()));
  const Region closed = *open;
  const Leaving leaving(closed);
  if (failed) {
    // The exception goes on; what was recorded before it takes effect as eager's would, whatever the region's limits say.
    regions_.erase(open);
    cut(Cut::CompileExit, where, &closed);
    return;
  }
  try {
    cut(Cut::CompileExit, where);
  } catch (...) {
    regions_.erase(open);
    throw;
  }
  regions_.erase(open);
}

const Region* Device::innermost() const {
  const auto thread = std::this_thread::get_id();
  const auto found =
      std::find_if(regions_.rbegin(), regions_.rend(), [&](const Region& region) { return region.thread == thread; });
  return found == regions_.rend() ? nullptr : &*found;
}

std::size_t Device::close_inside(std::size_t open) {
  const auto first = regions_.begin() + static_cast<std::ptrdiff_t>(open);
  const auto kept =
      std::remove_if(first + 1, regions_.end(), [&](const Region& region) { return region.thread == first->thread; });
  const auto closed = static_cast<std::size_t>(regions_.end() - kept);
  regions_.erase(kept, regions_.end());
  return closed;
}

void Device::set_eager_mode(bool on) {
  const auto guard = lock();
  if (on && !eager_mode_) {
    cut(Cut::Eager, nullptr);
  }
  eager_mode_ = on;
}

bool Device::eager_mode() {
  const auto guard = lock();
  return eager_mode_;
}

void Device::set_engine(const std::string& name) {
  Engine& chosen = spool::engine(name);
  const auto guard = lock();
  cut(Cut::Sync, nullptr);
  engine_ = &chosen;
}

std::string Device::engine_name() { return engine().name(); }

Engine& Device::engine() {
  const auto guard = lock();
  return *engine_;
}

std::size_t Device::cache_size() {
  const auto guard = lock();
  return cache_.size();
}

std::size_t Device::cache_capacity() {
  const auto guard = lock();
  return cache_.capacity();
}

void Device::set_cache_capacity(std::size_t capacity) {
  SPOOL_CHECK(capacity >= 1, Value, "[set_cache_capacity] expected at least 1, got ", capacity);
  const auto guard = lock();
  cache_.set_capacity(capacity);
  if (tape_.empty()) {
    cache_.shrink(tape_);
  }
}

std::size_t Device::tape_length() {
  const auto guard = lock();
  return tape_.length();
}

void Device::set_follow(bool on) {
  const auto guard = lock();
  follow_ = on;
}

std::string Device::graph_text(const std::vector<Slot*>& slots) {
  const auto guard = lock();
  std::vector<bool> live(tape_.slots().size(), false);
  for (const Slot* slot : slots) {
    if (tape_.touches(*slot) && slot->dirty) {
      live[slot->index] = true;
    }
  }
  const auto path = tape_.path();
  return text(optimise(functionalise(path, live)));
}

void Device::shut_down() { queue_.shut_down(); }

}  // namespace spool
