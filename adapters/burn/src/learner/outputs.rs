//! burn's own outputs, put together from those of all workers.

use burn_train::{
    ClassificationOutput, MultiLabelClassificationOutput, RegressionOutput, SequenceOutput,
};

use super::fields::{Field, Fields, GatherOutput};
use crate::Error;

impl GatherOutput for ClassificationOutput {
    fn into_fields(self) -> Result<Vec<Field>, Error> {
        Ok(vec![
            Field::mean(self.loss)?,
            Field::rows(self.output)?,
            Field::int_rows(self.targets)?,
        ])
    }

    fn from_fields(fields: &mut Fields) -> Result<Self, Error> {
        Ok(Self::new(fields.float()?, fields.float()?, fields.int()?))
    }
}

impl GatherOutput for MultiLabelClassificationOutput {
    fn into_fields(self) -> Result<Vec<Field>, Error> {
        Ok(vec![
            Field::mean(self.loss)?,
            Field::rows(self.output)?,
            Field::int_rows(self.targets)?,
        ])
    }

    fn from_fields(fields: &mut Fields) -> Result<Self, Error> {
        Ok(Self::new(fields.float()?, fields.float()?, fields.int()?))
    }
}

impl GatherOutput for RegressionOutput {
    fn into_fields(self) -> Result<Vec<Field>, Error> {
        Ok(vec![
            Field::mean(self.loss)?,
            Field::rows(self.output)?,
            Field::rows(self.targets)?,
        ])
    }

    fn from_fields(fields: &mut Fields) -> Result<Self, Error> {
        Ok(Self::new(fields.float()?, fields.float()?, fields.float()?))
    }
}

/// Its logits are sent whole: a row for each token of the vocabulary, for each token of the batch.
/// Sequences have one length on all workers: the chief cannot pad them, as only metrics know by
/// which token.
impl GatherOutput for SequenceOutput {
    fn into_fields(self) -> Result<Vec<Field>, Error> {
        let mut fields = vec![
            Field::mean(self.loss)?,
            Field::rows(self.logits)?,
            Field::int_rows(self.targets)?,
        ];
        if let Some(predictions) = self.predictions {
            fields.push(Field::int_rows(predictions)?);
        }
        Ok(fields)
    }

    fn from_fields(fields: &mut Fields) -> Result<Self, Error> {
        Ok(Self {
            loss: fields.float()?,
            logits: fields.float()?,
            targets: fields.int()?,
            predictions: match fields.is_empty() {
                true => None,
                false => Some(fields.int()?),
            },
        })
    }
}
