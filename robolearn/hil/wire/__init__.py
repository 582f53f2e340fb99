"""The wire between actors and learner: gRPC with safetensors, tokens, certificates; no pickle, no protoc."""
