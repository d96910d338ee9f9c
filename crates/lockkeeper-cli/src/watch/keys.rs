//! Keys, as they come from the terminal.

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::time::Duration;
use tokio::sync::mpsc;

/// How often the thread looks whether anybody still listens.
const GLANCE: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Control and C.
    Interrupt,
    /// The terminal has another size.
    Resized,
    /// The terminal is gone.
    HungUp,
}

/// Reads the terminal on a thread of its own, which ends when nobody listens any more.
pub(super) fn listen() -> std::io::Result<mpsc::UnboundedReceiver<Key>> {
    let (tell, told) = mpsc::unbounded_channel();
    let reader = std::thread::Builder::new().name("keys".into());
    reader.spawn(move || {
        while !tell.is_closed() {
            let key = match event::poll(GLANCE) {
                Ok(false) => continue,
                Ok(true) => event::read().map(key_of),
                Err(error) => Err(error),
            };
            match key {
                Ok(Some(key)) => drop(tell.send(key)),
                Ok(None) => {}
                Err(_) => {
                    let _ = tell.send(Key::HungUp);
                    return;
                }
            }
        }
    })?;
    Ok(told)
}

fn key_of(event: Event) -> Option<Key> {
    let key = match event {
        Event::Resize(..) => return Some(Key::Resized),
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c' | 'd') if control => Key::Interrupt,
        KeyCode::Char(_) if control || key.modifiers.contains(KeyModifiers::ALT) => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}
