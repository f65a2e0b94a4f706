// A client of an ext_proc server that keeps a rate whatever the server does, as Envoy's many requests do: streams
// begin at random moments (a Poisson process of fixed seed), each sends headers, waits for the answer, sends the
// body and waits again. A stream's time runs from the moment it is due, so a queue before the server counts.
//
//   paced SOCKET HEADERS BODY RATE COUNT CONNECTIONS
//
// HEADERS and BODY are files, a message each. Prints microseconds, a line per stream; fails where a stream does.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <time.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr char kMethod[] = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
constexpr unsigned kSeed = 20241115;
constexpr double kAtMostS = 20;

double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

void SleepUntil(double at) {
  timespec due{static_cast<time_t>(at), static_cast<long>((at - static_cast<time_t>(at)) * 1e9)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr);
}

grpc::ByteBuffer Read(const char* name) {
  std::ifstream file(name, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

struct Load {
  std::vector<grpc::ByteBuffer> messages;
  std::vector<double> took_us;
  std::atomic<int> done{0}, failed{0};
};

class Stream : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Stream(grpc::GenericStub* stub, Load* load, int number, double due) : load_(load), number_(number), due_(due) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    stub->PrepareBidiStreamingCall(&context_, kMethod, {}, this);
    StartRead(&answer_);
    StartWrite(&load_->messages[0]);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (++answers_ == load_->messages.size()) load_->took_us[number_] = (Now() - due_) * 1e6;
    GoOn();
  }

  void OnWriteDone(bool ok) override {
    if (ok) GoOn();
  }

  void OnDone(const grpc::Status&) override {
    if (answers_ != load_->messages.size()) load_->failed++;
    load_->done++;
    delete this;
  }

 private:
  // An answer may be told before its question's end is: the next write waits for both.
  void GoOn() {
    if (--awaited_ > 0) return;
    awaited_ = 2;
    StartRead(&answer_);
    if (answers_ < load_->messages.size()) return StartWrite(&load_->messages[answers_]);
    StartWritesDone();
  }

  Load* load_;
  int number_;
  double due_;
  std::atomic<int> awaited_{2};
  size_t answers_ = 0;
  grpc::ClientContext context_;
  grpc::ByteBuffer answer_;
};

}  // namespace

int main(int count, char** given) {
  if (count != 7) return 2;
  const double rate = std::atof(given[4]);
  const int streams = std::atoi(given[5]), connections = std::atoi(given[6]);
  Load load;
  load.messages = {Read(given[2]), Read(given[3])};
  load.took_us.resize(streams);
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
  for (int each = 0; each < connections; ++each) {
    grpc::ChannelArguments how;
    how.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    auto channel = grpc::CreateCustomChannel("unix:" + std::string(given[1]), grpc::InsecureChannelCredentials(), how);
    if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10))) return 1;
    stubs.push_back(std::make_unique<grpc::GenericStub>(channel));
  }
  std::mt19937 random(kSeed);
  std::exponential_distribution<double> wait(rate);
  double due = Now();
  for (int number = 0; number < streams; ++number) {
    due += wait(random);
    SleepUntil(due);
    new Stream(stubs[number % connections].get(), &load, number, due);
  }
  for (const double end = Now() + kAtMostS; load.done < streams && Now() < end;) SleepUntil(Now() + 0.01);
  if (load.done < streams || load.failed > 0) {
    std::fprintf(stderr, "%d of %d streams failed\n", streams - load.done + load.failed, streams);
    std::_Exit(1);
  }
  for (double each : load.took_us) std::printf("%.0f\n", each);
  std::fflush(stdout);
  std::_Exit(0);
}
