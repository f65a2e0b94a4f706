# NVIDIA's Triton with the models of this folder. docker-compose.gpu.yml says where others are.
FROM nvcr.io/nvidia/tritonserver:24.10-py3
COPY deploy/triton/models /models
