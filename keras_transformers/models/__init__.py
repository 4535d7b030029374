"""Models: one architecture a file, made of `keras_transformers.layers`."""

from keras_transformers.models.alignment_head import AlignmentHead
from keras_transformers.models.deformable_detr import DeformableDETR
from keras_transformers.models.deformable_queries import PointProposals, PointQueries
from keras_transformers.models.detr import DETR
from keras_transformers.models.detr_backbone import FeatureMap
from keras_transformers.models.detr_levels import FeatureMaps
from keras_transformers.models.detr_queries import (
    AnchorQueries,
    LearnedQueries,
    ObjectQueries,
    ProposalQueries,
)
from keras_transformers.models.detr_references import ReferenceQueries
from keras_transformers.models.dual_encoder import DualEncoder
from keras_transformers.models.head_transform import HeadTransform
from keras_transformers.models.image_embedding import ImageEmbedding
from keras_transformers.models.image_pooling import ImagePooling
from keras_transformers.models.language_head import LanguageHead
from keras_transformers.models.language_model import LanguageModel
from keras_transformers.models.mae import MAE
from keras_transformers.models.mvit import MViT
from keras_transformers.models.pvt import PVT
from keras_transformers.models.recurrent import RecurrentTranslator
from keras_transformers.models.resnet import ResNet
from keras_transformers.models.segformer import SegFormer
from keras_transformers.models.span_head import SpanHead
from keras_transformers.models.swin import Swin
from keras_transformers.models.text_embedding import TextEmbedding
from keras_transformers.models.text_encoder import TextEncoder
from keras_transformers.models.text_heads import ClassificationHead, MaskedLanguageHead, TaggingHead
from keras_transformers.models.text_pooling import EndPooling, LastPooling
from keras_transformers.models.transformer import Transformer
from keras_transformers.models.vit import ViT

__all__ = [
    "AlignmentHead",
    "DETR",
    "DeformableDETR",
    "MAE",
    "AnchorQueries",
    "ClassificationHead",
    "DualEncoder",
    "EndPooling",
    "FeatureMap",
    "FeatureMaps",
    "ImageEmbedding",
    "ImagePooling",
    "HeadTransform",
    "LanguageHead",
    "LanguageModel",
    "LastPooling",
    "LearnedQueries",
    "MViT",
    "MaskedLanguageHead",
    "PVT",
    "RecurrentTranslator",
    "ObjectQueries",
    "PointProposals",
    "PointQueries",
    "ProposalQueries",
    "ReferenceQueries",
    "ResNet",
    "SpanHead",
    "SegFormer",
    "Swin",
    "TaggingHead",
    "TextEmbedding",
    "TextEncoder",
    "Transformer",
    "ViT",
]
