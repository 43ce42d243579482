"""The images, built from the Dockerfile and run without a container engine: `make image-test`."""
