// An HTTP/1.1 engine: each POST is answered with a stream of events, each GET with an empty 200.
#pragma once

#include <netinet/tcp.h>

#include <cctype>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sse_waiting.h"

namespace sse {

inline std::string Lower(std::string text) {
  for (char& each : text) each = static_cast<char>(std::tolower(static_cast<unsigned char>(each)));
  return text;
}

class Engine {
 public:
  Engine(int port, double events_per_s, double seconds)
      : interval_(static_cast<Ns>(kSecond / events_per_s)), events_(static_cast<int>(events_per_s * seconds + 0.5)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    const int on = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_in address = Loopback(port);
    if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) Die("cannot listen");
    if (listen(listener_, 4096) != 0) Die("cannot listen");
    waiter_.Control(EPOLL_CTL_ADD, listener_, kListener, EPOLLIN);
  }

  [[noreturn]] void Run() {
    for (;;) {
      waiter_.WakeAt(due_.empty() ? 0 : due_.top().first);
      waiter_.Wait([this](uint64_t id, uint32_t events) {
        if (id == Waiter::kTimer) return SendDue();
        if (id == kListener) return Accept();
        Serve(id, events);
      });
    }
  }

 private:
  static constexpr uint64_t kListener = 1;

  struct Connection {
    int fd;
    std::string in, out;
    Ns started = 0;
    int sent = 0;
    bool streams = false;
  };
  using Due = std::pair<Ns, uint64_t>;

  void Accept() {
    int fd;
    while ((fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK)) >= 0) {
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      const uint64_t id = next_++;
      connections_[id].fd = fd;
      waiter_.Control(EPOLL_CTL_ADD, fd, id, EPOLLIN);
    }
  }

  void Serve(uint64_t id, uint32_t events) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    if (events & EPOLLOUT) Write(id, connection, "");
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
    char block[65536];
    const ssize_t size = recv(connection.fd, block, sizeof block, 0);
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      close(connection.fd);
      connections_.erase(found);  // its moments in due_ find nobody
      return;
    }
    connection.in.append(block, static_cast<size_t>(size));
    Answer(id, connection);
  }

  void Answer(uint64_t id, Connection& connection) {
    const size_t end = connection.in.find("\r\n\r\n");
    if (connection.streams || end == std::string::npos) return;
    const std::string head = Lower(connection.in.substr(0, end));
    const size_t declared = head.find("\r\ncontent-length: ");
    const size_t length = declared == std::string::npos ? 0 : std::strtoul(&head[declared + 18], nullptr, 10);
    if (connection.in.size() < end + 4 + length) return;
    connection.in.erase(0, end + 4 + length);
    if (head.compare(0, 4, "get ") == 0) {  // a health check, or a look at the metrics
      return Write(id, connection, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    }
    const char* judged = head.find("\r\nx-llm-params: ") == std::string::npos ? "0" : "1";
    connection.streams = true;
    connection.started = Now();
    connection.sent = 0;
    Write(id, connection,
          std::string("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-judged: ") + judged +
              "\r\ntransfer-encoding: chunked\r\n\r\n");
    SendNext(id, connection);
  }

  void SendDue() {
    while (!due_.empty() && due_.top().first <= Now()) {
      const uint64_t id = due_.top().second;
      due_.pop();
      const auto found = connections_.find(id);
      if (found != connections_.end()) SendNext(id, found->second);
    }
  }

  // Moments are counted from the start of the stream: one late event does not move those behind it.
  void SendNext(uint64_t id, Connection& connection) {
    if (connection.sent == events_) {
      connection.streams = false;
      return Write(id, connection, Chunk("data: [DONE]\n\n") + "0\r\n\r\n");
    }
    char event[512];
    std::snprintf(event, sizeof event,
                  "data: {\"id\":\"chatcmpl-%llu\",\"object\":\"chat.completion.chunk\",\"model\":\"llama-70b-chat\","
                  "\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}],"
                  "\"sent_ns\":%lld}\n\n",
                  static_cast<unsigned long long>(id), static_cast<long long>(Now()));
    Write(id, connection, Chunk(event));
    connection.sent += 1;
    due_.emplace(connection.started + connection.sent * interval_, id);
  }

  static std::string Chunk(const std::string& data) {
    char size[32];
    std::snprintf(size, sizeof size, "%zx\r\n", data.size());
    return size + data + "\r\n";
  }

  // A peer that has gone is noticed by the read that follows.
  void Write(uint64_t id, Connection& connection, const std::string& data) {
    const bool waited = !connection.out.empty();
    connection.out += data;
    const ssize_t size = send(connection.fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (size > 0) connection.out.erase(0, static_cast<size_t>(size));
    if (size < 0 && errno != EAGAIN) connection.out.clear();
    if (waited != !connection.out.empty()) {
      const uint32_t more = connection.out.empty() ? 0u : static_cast<uint32_t>(EPOLLOUT);
      waiter_.Control(EPOLL_CTL_MOD, connection.fd, id, EPOLLIN | more);
    }
  }

  const Ns interval_;
  const int events_;
  int listener_;
  uint64_t next_ = kListener + 1;
  Waiter waiter_;
  std::unordered_map<uint64_t, Connection> connections_;
  std::priority_queue<Due, std::vector<Due>, std::greater<Due>> due_;
};

}  // namespace sse
