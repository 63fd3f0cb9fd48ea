# The product as an image: one static file, what its guests run, no root, no capability, one volume.
#
#   docker build -t oubliette .                       (PROFILE=dev builds faster and runs slower)
#   docker run --rm --read-only --cap-drop ALL --security-opt no-new-privileges --network none oubliette doctor
#
# docs/guide/container.md says which tier it gets where, and how it runs beside a model server.

FROM rust:1.95-trixie AS build
ARG PROFILE=release
WORKDIR /src
COPY . .
# The caches are the builder's own: nothing of them is in the image.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,sharing=locked \
    set -eu; \
    host=$(rustc -vV | sed -n 's/^host: //p'); \
    cargo build --locked --profile "$PROFILE" --target "$host" -p oubliette; \
    case $PROFILE in dev) folder=debug ;; *) folder=$PROFILE ;; esac; \
    install -D -m 755 "target/$host/$folder/oubliette" /out/oubliette

FROM debian:trixie-slim
# python3 is for guests (the example, `oubliette prove`); runsc is the tier gvisor, for containers that allow namespaces.
RUN set -eu; \
    apt-get update; \
    apt-get install -y --no-install-recommends python3 runsc; \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*; \
    find / -xdev -type f -perm /6000 -exec chmod a-s {} +; \
    install -d -o 10001 -g 10001 -m 700 /data
COPY --from=build /out/oubliette /usr/local/bin/oubliette
COPY examples /usr/local/share/oubliette/examples
# The one place that is written: runs, and what lives as long as one.
ENV TMPDIR=/data
VOLUME /data
USER 10001:10001
# A relative `data`, as deployments have it, is the volume.
WORKDIR /
ENTRYPOINT ["oubliette"]
CMD ["--help"]
