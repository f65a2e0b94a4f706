// An engine that streams server-sent events, and a client that times them: so light that what lies between the two is
// measured and not they. One thread each, epoll, no library. An event carries the engine's CLOCK_MONOTONIC, which the
// client on the same machine reads too.
//
//   sse engine PORT --events-per-s 5 --seconds 30
//   sse client PORT [PORT ...] --streams 1000 --events 150 --body FILE [--spread 2] [--limit 60] [--seed 1]
//
// The client opens that many streams on every port, spread over the first seconds. It writes the line "open" when
// every stream has had an event, "ending" when the first one is over, and at the end one line of JSON.
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "sse_client.h"
#include "sse_engine.h"

namespace {

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) sse::Die("cannot read " + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

int main(int count, char** words) {
  std::map<std::string, std::string> options;
  std::vector<int> ports;
  for (int at = 2; at < count; ++at) {
    const std::string word = words[at];
    if (word.compare(0, 2, "--") != 0) {
      ports.push_back(std::atoi(word.c_str()));
    } else if (++at < count) {
      options[word.substr(2)] = words[at];
    }
  }
  const auto number = [&](const char* name, double otherwise) {
    return options.count(name) ? std::atof(options[name].c_str()) : otherwise;
  };
  const std::string mode = count > 1 ? words[1] : "";
  if (mode == "engine" && ports.size() == 1) {
    sse::Engine(ports[0], number("events-per-s", 5), number("seconds", 30)).Run();
  }
  if (mode != "client" || ports.empty()) sse::Die("sse engine PORT ... or sse client PORT ...");
  sse::Wanted wanted{};
  wanted.streams = static_cast<int>(number("streams", 1000));
  wanted.events = static_cast<int>(number("events", 150));
  wanted.spread_s = number("spread", 2);
  wanted.limit_s = number("limit", 60);
  wanted.seed = static_cast<unsigned>(number("seed", 1));
  wanted.body = Contents(options["body"]);
  sse::Client(ports, wanted).Run();
  return 0;
}
