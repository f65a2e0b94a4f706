// The limit: what gRPC itself costs. No JSON is read; a body gets one key in front and its content-length.
#include <grpcpp/grpcpp.h>

#include <csignal>
#include <string>

#include "ext_proc.grpc.pb.h"

namespace pb = envoy::service::ext_proc::v3;

namespace {

const std::string kInserted = R"({"x":1,)";

void Answer(const pb::ProcessingRequest& request, pb::ProcessingResponse* response) {
  if (!request.has_request_body()) {
    response->mutable_request_headers()->mutable_response();
    return;
  }
  auto* common = response->mutable_request_body()->mutable_response();
  const std::string& body = request.request_body().body();
  std::string* changed = common->mutable_body_mutation()->mutable_body();
  changed->reserve(body.size() + kInserted.size());
  changed->append(kInserted).append(body, body.empty() ? 0 : 1, std::string::npos);
  auto* length = common->mutable_header_mutation()->add_set_headers();
  length->set_append_action(pb::HeaderValueOption::OVERWRITE_IF_EXISTS_OR_ADD);
  length->mutable_header()->set_key("content-length");
  length->mutable_header()->set_raw_value(std::to_string(changed->size()));
  common->set_clear_route_cache(true);
}

class Stream : public grpc::ServerBidiReactor<pb::ProcessingRequest, pb::ProcessingResponse> {
 public:
  Stream() { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    response_.Clear();
    Answer(request_, &response_);
    StartWrite(&response_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok || request_.has_request_body()) return Finish(grpc::Status::OK);
    StartRead(&request_);
  }

  void OnDone() override { delete this; }

 private:
  pb::ProcessingRequest request_;
  pb::ProcessingResponse response_;
};

class Processor : public pb::ExternalProcessor::CallbackService {
  grpc::ServerBidiReactor<pb::ProcessingRequest, pb::ProcessingResponse>* Process(
      grpc::CallbackServerContext*) override {
    return new Stream;
  }
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  Processor processor;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(arguments[1], grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterService(&processor);
  auto server = builder.BuildAndStart();
  if (!server) return 1;
  std::signal(SIGTERM, [](int) { std::_Exit(0); });
  server->Wait();
}
