//! How the program is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |of: &str| std::env::var(format!("CARGO_CFG_TARGET_{of}")).unwrap_or_default();
    // It is a static file that is loaded anywhere, so each start first mends some 35,000 pointers of its own. Packed, what
    // says where they are takes 20 KiB to read in place of 800. For libc since glibc 2.36 and GNU ld since 2.38.
    if target("ARCH") == "x86_64" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
