//! Commands about boxes, their files, processes, images and skills.

mod cp;
mod errors;
mod images;
mod processes;
mod run;
mod sessions;
pub(crate) mod skill_commands;
mod skills_in_boxes;
mod tokens;
