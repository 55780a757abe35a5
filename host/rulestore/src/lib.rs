mod near;
mod toml_file;
