//! A job in a terminal, until `q` is pressed.

use std::io;
use std::time::Duration;

use meshwork_status::{Job, State};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::widgets::{Paragraph, Row, Table, TableState};
use ratatui::{DefaultTerminal, Frame};

use super::TopError;
use super::table::{COLUMNS, headline, remarks, rows};

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks again and again. Ranks that do not answer any more are no reason to end.
pub(super) fn show(mut look: impl FnMut() -> Result<Job, TopError>) -> Result<(), TopError> {
    let mut job = look()?;
    let mut terminal = ratatui::try_init()?;
    let shown = (|| {
        let mut place = TableState::default().with_selected(0);
        let mut silent = None;
        loop {
            let remarks = silent
                .clone()
                .map_or_else(|| remarks(&job), |first| vec![first]);
            terminal.draw(|frame| draw(frame, &job, &remarks, &mut place))?;
            if asked_to_end(&mut terminal, &mut place)? {
                return Ok(());
            }
            match look() {
                Ok(next) => (job, silent) = (next, None),
                Err(TopError::Silent { first }) => silent = Some(first),
                Err(other) => return Err(other),
            }
        }
    })();
    ratatui::try_restore()?;
    shown
}

/// Waits for the next look, and for keys.
fn asked_to_end(terminal: &mut DefaultTerminal, place: &mut TableState) -> io::Result<bool> {
    if !event::poll(PAUSE)? {
        return Ok(false);
    }
    match event::read()? {
        Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
            KeyCode::Char('c') if key.modifiers == KeyModifiers::CONTROL => return Ok(true),
            KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
            KeyCode::Down | KeyCode::Char('j') => place.select_next(),
            KeyCode::Up | KeyCode::Char('k') => place.select_previous(),
            _ => {}
        },
        Event::Resize(..) => terminal.autoresize()?,
        _ => {}
    }
    Ok(false)
}

fn draw(frame: &mut Frame<'_>, job: &Job, remarks: &[String], place: &mut TableState) {
    let below = u16::try_from(remarks.len()).unwrap_or(u16::MAX).min(5);
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(below),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(headline(job)).bold(), top);
    let widths = COLUMNS.map(|(_, width)| match width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(width),
    });
    let rows = rows(job).into_iter().zip(job.states());
    let rows = rows.map(|(cells, state)| Row::new(cells).style(style(state)));
    let table = Table::new(rows, widths)
        .header(Row::new(COLUMNS.map(|(name, _)| name)).reversed())
        .row_highlight_style(Style::new().bold());
    frame.render_stateful_widget(table, middle, place);
    frame.render_widget(Paragraph::new(remarks.join("\n")), bottom);
}

/// The terminal's own colours, which suit its background; the names say the same.
fn style(state: State) -> Style {
    match state {
        State::Working => Style::new(),
        State::Waiting => Style::new().fg(Color::Yellow),
        State::Failed | State::Silent | _ => Style::new().fg(Color::Red),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;
    use meshwork_status::{JobWatch, Look};

    #[test]
    fn a_terminal_shows_who_waits_where_and_who_is_silent() {
        let current =
            json!({ "what": "barrier", "site": "train.rs:7", "seconds": 3.0, "awaited": 1 });
        let waiting = json!({
            "version": 1, "rank": 0, "address": "a:1", "world": 2, "view": 1, "age_seconds": 3.0,
            "in_operations_seconds": 3.0, "waiting_share": 1.0, "current": current, "traffic": [],
            "peers": [], "numbers": {}, "departures": [], "arrivals": [],
        });
        let stopped =
            json!({ "rank": 1, "unanswered": "b:1 has not answered", "silence": "stopped" });
        let lines = [waiting, stopped].map(|line| line.to_string());
        let look = Look::from_lines(0.0, lines.iter().map(|line| Ok(line.as_str())));
        let job = JobWatch::default().see(look);
        let mut terminal = Terminal::new(TestBackend::new(100, 8)).unwrap();
        let mut place = TableState::default();
        terminal
            .draw(|frame| draw(frame, &job, &remarks(&job), &mut place))
            .unwrap();
        let shown = terminal.backend().to_string();
        for expected in [
            "2 ranks  rank 1 is stopped: ",
            "3.0 s for rank 1 barrier at train.rs:7",
            "no answer",
            "b:1 has not answered",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
            // The text for pipes says the same.
            assert!(
                super::super::table::text(&job).contains(expected),
                "{expected}"
            );
        }
    }
}
