// The clock of all of them, and waiting: for files, and for one moment with the precision of nanoseconds.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

namespace sse {

using Ns = int64_t;
constexpr Ns kSecond = 1'000'000'000;

inline Ns Now() {
  timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * kSecond + at.tv_nsec;
}

[[noreturn]] inline void Die(const std::string& what) {
  std::fprintf(stderr, "sse: %s%s%s\n", what.c_str(), errno ? ": " : "", errno ? std::strerror(errno) : "");
  std::exit(1);
}

inline sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// What a thread waits for: files by a number of their own, and one moment.
class Waiter {
 public:
  static constexpr uint64_t kTimer = 0;

  Waiter() : epoll_(epoll_create1(0)), timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK)) {
    if (epoll_ < 0 || timer_ < 0) Die("cannot wait");
    Control(EPOLL_CTL_ADD, timer_, kTimer, EPOLLIN);
  }

  void Control(int operation, int fd, uint64_t id, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    if (epoll_ctl(epoll_, operation, fd, &event) != 0) Die("cannot watch a file");
  }

  // 0 = never. A timerfd and not a timeout of epoll, which is in whole milliseconds.
  void WakeAt(Ns at) {
    if (at == armed_) return;
    armed_ = at;
    itimerspec when{};
    when.it_value.tv_sec = at / kSecond;
    when.it_value.tv_nsec = at % kSecond;
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
  }

  template <typename F>
  void Wait(F handle) {
    epoll_event events[256];
    const int count = epoll_wait(epoll_, events, 256, -1);
    for (int at = 0; at < count; ++at) {
      if (events[at].data.u64 == kTimer) {
        uint64_t fired;
        if (read(timer_, &fired, sizeof fired) > 0) armed_ = 0;
      }
      handle(events[at].data.u64, events[at].events);
    }
  }

 private:
  int epoll_, timer_;
  Ns armed_ = 0;
};

}  // namespace sse
