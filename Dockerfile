# The `meshwork` command and the MNIST example, for docs/book/src/files/job.yaml:
#   docker build -t example/mnist .
# Everything that is not built here is a package of the distribution, but for the compiler, of which it has
# an older one than Cargo.toml asks for.
FROM debian:trixie-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev rustup \
    && rm -rf /var/lib/apt/lists/* \
    && rustup toolchain install 1.95 --profile minimal
WORKDIR /src
COPY . .
RUN cargo +1.95 build --locked --release -p meshwork-cli -p mnist --features mnist/status

FROM debian:trixie-slim
COPY --from=build /src/target/release/meshwork /src/target/release/mnist /usr/local/bin/
COPY --from=build /src/examples/mnist/data /usr/local/share/mnist
# No user of the host has this number, and nothing in the image is theirs to write.
USER 10001:10001
# For the check below and for `meshwork top`, from inside alone.
ENV MESHWORK_STATUS=127.0.0.1:9464
EXPOSE 4000/udp
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s CMD ["meshwork", "top", "--once", "127.0.0.1:9464"]
CMD ["mnist", "--data", "/usr/local/share/mnist"]
