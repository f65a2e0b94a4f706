// Streams on several ports at once, timed event by event.
#pragma once

#include <netinet/tcp.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "sse_waiting.h"

namespace sse {

// A chunked HTTP/1.1 answer, read as it comes; whole lines of its body go to the callback.
class AnswerReader {
 public:
  std::string head;
  bool ended = false;

  template <typename F>
  void Read(const char* data, size_t size, F on_line) {
    for (size_t at = 0; at < size && !ended; ++at) Take(data[at], on_line);
  }

 private:
  enum class In { kHead, kSize, kData, kDataEnd, kLast };

  template <typename F>
  void Take(char each, F on_line) {
    switch (in_) {
      case In::kHead:
        head += each;
        if (head.size() >= 4 && head.compare(head.size() - 4, 4, "\r\n\r\n") == 0) {
          in_ = In::kSize;
          ended = head.find("\r\ntransfer-encoding: chunked\r\n") == std::string::npos;  // an error, then
        }
        break;
      case In::kSize:
        if (each == '\n') {
          left_ = std::strtoul(text_.c_str(), nullptr, 16);
          in_ = left_ ? In::kData : In::kLast;
          text_.clear();
        } else {
          text_ += each;
        }
        break;
      case In::kData:
        line_ += each;
        if (each == '\n') on_line(std::exchange(line_, ""));
        if (--left_ == 0) in_ = In::kDataEnd;
        break;
      case In::kDataEnd:
        if (each == '\n') in_ = In::kSize;
        break;
      case In::kLast:  // no trailers are expected
        ended = each == '\n';
    }
  }

  In in_ = In::kHead;
  std::string text_, line_;
  size_t left_ = 0;
};

struct Target {
  explicit Target(int port) : port(port) {}

  const int port;
  int complete = 0, judged = 0;
  std::string error;
  std::vector<Ns> spacing, sent_spacing, delay, first;
  std::vector<Ns> held_spacing, held_delay;  // while all streams are open
};

struct Stream {
  Stream(Target* target, Ns due) : target(target), due(due) {}

  Target* const target;
  const Ns due;
  int fd = -1;
  int events = 0;
  bool asked = false, done = false, over = false;
  Ns connected = 0, last = 0, last_sent = 0;
  AnswerReader answer;
};

struct Wanted {
  int streams, events;
  double spread_s, limit_s;
  unsigned seed;
  std::string body;
};

class Client {
 public:
  Client(const std::vector<int>& ports, const Wanted& wanted) : wanted_(wanted) {
    for (const int port : ports) targets_.push_back(std::make_unique<Target>(port));
    std::mt19937_64 random(wanted.seed);
    std::uniform_real_distribution<double> moment(0, wanted.spread_s);
    begun_ = Now() + kSecond / 10;
    for (int number = 0; number < wanted.streams; ++number) {
      for (const auto& target : targets_) {
        const Ns due = begun_ + static_cast<Ns>(moment(random) * kSecond);
        streams_.push_back(std::make_unique<Stream>(target.get(), due));
      }
    }
    std::sort(streams_.begin(), streams_.end(), [](const auto& a, const auto& b) { return a->due < b->due; });
    left_ = unheard_ = streams_.size();
    request_ = "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: " +
               std::to_string(wanted.body.size()) + "\r\n\r\n" + wanted.body;
  }

  void Run() {
    const Ns limit = begun_ + static_cast<Ns>(wanted_.limit_s * kSecond);
    while (left_ > 0 && Now() < limit) {
      waiter_.WakeAt(started_ < streams_.size() ? std::min(streams_[started_]->due, limit) : limit);
      waiter_.Wait([this](uint64_t id, uint32_t) {
        if (id == Waiter::kTimer) return;
        Stream& stream = *streams_[id - 1];
        if (!stream.over) stream.asked ? Receive(stream) : Ask(id, stream);
      });
      while (started_ < streams_.size() && streams_[started_]->due <= Now()) Connect(started_++);
    }
    for (const auto& stream : streams_) {
      if (!stream->over) End(*stream, "not over within the time limit");
    }
    Report();
  }

 private:
  void Connect(size_t index) {
    Stream& stream = *streams_[index];
    stream.connected = Now();
    stream.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (stream.fd < 0) return End(stream, std::strerror(errno));
    const int on = 1;
    setsockopt(stream.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const sockaddr_in address = Loopback(stream.target->port);
    const int failed = connect(stream.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (failed && errno != EINPROGRESS) return End(stream, std::strerror(errno));
    waiter_.Control(EPOLL_CTL_ADD, stream.fd, index + 1, EPOLLOUT);
  }

  void Ask(uint64_t id, Stream& stream) {
    const ssize_t size = send(stream.fd, request_.data(), request_.size(), MSG_NOSIGNAL);
    if (size != static_cast<ssize_t>(request_.size())) return End(stream, "the request was not taken at once");
    stream.asked = true;
    waiter_.Control(EPOLL_CTL_MOD, stream.fd, id, EPOLLIN);
  }

  void Receive(Stream& stream) {
    char block[16384];
    const ssize_t size = recv(stream.fd, block, sizeof block, 0);
    const Ns now = Now();
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) return End(stream, size ? std::strerror(errno) : "closed before its end");
    stream.answer.Read(block, static_cast<size_t>(size), [&](const std::string& line) { Line(stream, line, now); });
    if (!stream.answer.ended) return;
    const bool whole = stream.done && stream.events == wanted_.events;
    End(stream, whole ? "" : "events are missing: " + stream.answer.head.substr(0, stream.answer.head.find('\r')));
  }

  void Line(Stream& stream, const std::string& line, Ns now) {
    if (line == "data: [DONE]\n") stream.done = true;
    const size_t at = line.find("\"sent_ns\":");
    if (at == std::string::npos) return;
    const Ns sent = std::strtoll(&line[at + 10], nullptr, 10);
    Target& target = *stream.target;
    const bool held = opened_ && !ending_;
    target.delay.push_back(now - sent);
    if (held) target.held_delay.push_back(now - sent);
    if (stream.events++ > 0) {
      target.spacing.push_back(now - stream.last);
      target.sent_spacing.push_back(sent - stream.last_sent);
      if (held && stream.last >= opened_) target.held_spacing.push_back(now - stream.last);
    } else {
      target.first.push_back(now - stream.connected);
      target.judged += stream.answer.head.find("\r\nx-judged: 1\r\n") != std::string::npos;
      Heard();
    }
    stream.last = now;
    stream.last_sent = sent;
  }

  void Heard() {
    if (--unheard_ > 0) return;
    opened_ = Now();
    Tell("open");
  }

  void End(Stream& stream, const std::string& error) {
    stream.over = true;
    if (stream.fd >= 0) close(stream.fd);
    left_ -= 1;
    if (error.empty()) stream.target->complete += 1;
    if (!error.empty() && stream.target->error.empty()) stream.target->error = error;
    if (stream.events == 0) Heard();  // nobody waits for a stream that failed
    if (!opened_ || ending_) return;
    ending_ = true;
    Tell("ending");
  }

  static void Tell(const char* line) {
    std::puts(line);
    std::fflush(stdout);
  }

  static void Figures(const char* name, std::vector<Ns>& values) {
    std::sort(values.begin(), values.end());
    const auto at = [&](double share) {
      if (values.empty()) return 0.0;
      const auto index = static_cast<size_t>(share * static_cast<double>(values.size()));
      return static_cast<double>(values[std::min(index, values.size() - 1)]) / 1e6;
    };
    std::printf(",\"%s\":{\"p50\":%.4f,\"p99\":%.4f,\"max\":%.4f}", name, at(0.5), at(0.99), at(1));
  }

  void Report() {
    const char* comma = "";
    std::printf("{\"targets\":[");
    for (const auto& target : targets_) {
      std::printf("%s{\"port\":%d,\"streams\":%d,\"complete\":%d,\"judged\":%d,\"events\":%zu,\"error\":\"%s\"", comma,
                  target->port, wanted_.streams, target->complete, target->judged, target->delay.size(),
                  target->error.c_str());
      Figures("spacing_ms", target->spacing);
      Figures("sent_spacing_ms", target->sent_spacing);
      Figures("delay_ms", target->delay);
      Figures("first_ms", target->first);
      Figures("held_spacing_ms", target->held_spacing);
      Figures("held_delay_ms", target->held_delay);
      std::printf("}");
      comma = ",";
    }
    Tell("]}");
  }

  const Wanted wanted_;
  std::string request_;
  Ns begun_, opened_ = 0;
  size_t started_ = 0, left_ = 0, unheard_ = 0;
  bool ending_ = false;
  Waiter waiter_;
  std::vector<std::unique_ptr<Target>> targets_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace sse
